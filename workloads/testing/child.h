#pragma once

// Starts one of the workload binaries for a test and waits for lines of its log. Not thread-safe.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "workloads/base/io.h"

namespace torpor::workloads::testing {

class Child {
 public:
  // Starts the program; its stdout and stderr are read by this object.
  explicit Child(std::vector<std::string> arguments);

  // Kills the program if it still runs.
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // Waits up to 10 seconds for "<prefix>...:<port>" in the log and returns the port, or 0.
  uint16_t WaitForPort(const std::string& prefix);

  // Waits up to 10 seconds for a text in the log.
  bool WaitForText(const std::string& text);

  // Waits for the end and returns the exit status, or -1 after 10 seconds or if a signal ended it.
  int Wait();

  void Signal(int number);

  const std::string& log() const { return log_; }

 private:
  bool ReadMore(int64_t deadline_ns);

  pid_t pid_ = -1;
  UniqueFd output_;
  std::string log_;
};

// A new empty directory that is removed at the end.
class TempDir {
 public:
  TempDir();
  ~TempDir();
  TempDir(const TempDir&) = delete;
  TempDir& operator=(const TempDir&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace torpor::workloads::testing
