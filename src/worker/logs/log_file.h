#pragma once
// A log file and its predecessor: `<name>` is appended to until it is full, then it becomes
// `<name>.1` and a new one begins. No fsync. Not thread-safe.

#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/unique_fd.h"
#include "os/fs/dir_fd.h"

namespace torpor::worker {

class LogFile {
 public:
  // `dir` must outlive it. Nothing is opened before the first line.
  LogFile(const os::DirFd* dir, std::string name, int64_t bytes_max)
      : dir_(dir), name_(std::move(name)), bytes_max_(bytes_max) {}
  // A line that cannot be written (disk full) is lost; a guest never waits for its log.
  Status Append(std::string_view line);

 private:
  Status OpenCurrent();

  const os::DirFd* const dir_;
  const std::string name_;
  const int64_t bytes_max_;
  UniqueFd fd_;
  int64_t size_ = 0;
};

}  // namespace torpor::worker
