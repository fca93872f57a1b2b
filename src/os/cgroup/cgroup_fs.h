#pragma once
// The few file operations of a cgroup tree, so that tests can put a simulated kernel behind it.

#include <sys/types.h>

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace torpor::os {

// Thread-safe. Errors by errno (base/status.h): NOT_FOUND, ALREADY_EXISTS, FAILED_PRECONDITION for
// EBUSY.
class CgroupFs {
 public:
  virtual ~CgroupFs() = default;
  virtual Status MakeDir(const std::string& path) = 0;
  virtual Status RemoveDir(const std::string& path) = 0;
  virtual StatusOr<std::string> Read(const std::string& path) = 0;
  virtual Status Write(const std::string& path, const std::string& value) = 0;
  // Writes a pid into a cgroup.procs file. 0 or the errno itself, because ESRCH (no such process)
  // and ENOENT (no such group) must never be taken for each other.
  virtual int Join(const std::string& procs_file, pid_t pid) = 0;
  virtual StatusOr<std::vector<std::string>> ListDirs(const std::string& path) = 0;
  // SIGKILL to each process listed in the file at the time of the signal.
  virtual Status KillListed(const std::string& procs_file) = 0;
  // Lets the kernel do its work between two looks at the same file.
  virtual void Pause() = 0;

  static std::shared_ptr<CgroupFs> Real();
};

}  // namespace torpor::os
