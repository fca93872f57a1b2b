#include "os/cgroup/cgroup_fs.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <sstream>
#include <thread>

#include "base/unique_fd.h"
#include "os/process/process.h"

namespace torpor::os {
namespace {

class RealCgroupFs : public CgroupFs {
 public:
  Status MakeDir(const std::string& path) override {
    if (mkdir(path.c_str(), 0755) == 0) return OkStatus();
    return ErrnoStatus(errno, "mkdir " + path);
  }

  Status RemoveDir(const std::string& path) override {
    if (rmdir(path.c_str()) == 0) return OkStatus();
    return ErrnoStatus(errno, "rmdir " + path);
  }

  StatusOr<std::string> Read(const std::string& path) override {
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
    std::string content;
    char buffer[8192];
    for (;;) {
      ssize_t n = read(fd.get(), buffer, sizeof buffer);
      if (n < 0) return ErrnoStatus(errno, "read " + path);
      if (n == 0) return content;
      content.append(buffer, static_cast<size_t>(n));
    }
  }

  Status Write(const std::string& path, const std::string& value) override {
    UniqueFd fd(open(path.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd.valid()) return ErrnoStatus(errno, "open " + path);
    if (write(fd.get(), value.data(), value.size()) != static_cast<ssize_t>(value.size())) {
      return ErrnoStatus(errno, "write " + value + " to " + path);
    }
    return OkStatus();
  }

  int Join(const std::string& procs_file, pid_t pid) override {
    UniqueFd fd(open(procs_file.c_str(), O_WRONLY | O_CLOEXEC));
    if (!fd.valid()) return errno;
    std::string text = std::to_string(pid);
    return write(fd.get(), text.data(), text.size()) < 0 ? errno : 0;
  }

  StatusOr<std::vector<std::string>> ListDirs(const std::string& path) override {
    std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(path.c_str()), closedir);
    if (dir == nullptr) return ErrnoStatus(errno, "opendir " + path);
    std::vector<std::string> names;
    while (dirent* entry = readdir(dir.get())) {
      std::string name = entry->d_name;
      if (entry->d_type == DT_DIR && name != "." && name != "..") names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
  }

  Status KillListed(const std::string& procs_file) override {
    ASSIGN_OR_RETURN(std::vector<pid_t> pids, ReadPids(procs_file));
    std::vector<std::pair<pid_t, UniqueFd>> held;
    for (pid_t pid : pids) {
      auto pidfd = OpenPidfd(pid);
      if (pidfd.ok()) held.emplace_back(pid, std::move(*pidfd));
    }
    // Read again with the handles in hand: a number that is still listed is the process meant.
    ASSIGN_OR_RETURN(pids, ReadPids(procs_file));
    for (const auto& [pid, pidfd] : held) {
      if (std::find(pids.begin(), pids.end(), pid) == pids.end()) continue;
      RETURN_IF_ERROR(SignalPidfd(pidfd.get(), SIGKILL));
    }
    return OkStatus();
  }

  void Pause() override { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }

 private:
  StatusOr<std::vector<pid_t>> ReadPids(const std::string& file) {
    ASSIGN_OR_RETURN(std::string text, Read(file));
    std::istringstream words(text);
    std::vector<pid_t> pids;
    // 0 = a process outside our pid namespace.
    for (pid_t pid; words >> pid;) {
      if (pid > 0 && pid != getpid()) pids.push_back(pid);
    }
    return pids;
  }
};

}  // namespace

std::shared_ptr<CgroupFs> CgroupFs::Real() { return std::make_shared<RealCgroupFs>(); }

}  // namespace torpor::os
