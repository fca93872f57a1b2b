#pragma once
// A simulated kernel's cgroup file system for tests: directories get the files of their version
// when they are made, a directory with processes cannot be removed, killed processes disappear.

#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/sync.h"
#include "os/cgroup/cgroup_fs.h"

namespace torpor::os {

class FakeCgroupFs : public CgroupFs {
 public:
  // `mounts` exist from the start. `v2` decides which files a new directory gets.
  FakeCgroupFs(bool v2, const std::set<std::string>& mounts);

  Status MakeDir(const std::string& path) override EXCLUDES(mu_);
  Status RemoveDir(const std::string& path) override EXCLUDES(mu_);
  StatusOr<std::string> Read(const std::string& path) override EXCLUDES(mu_);
  Status Write(const std::string& path, const std::string& value) override EXCLUDES(mu_);
  int Join(const std::string& procs_file, pid_t pid) override EXCLUDES(mu_);
  StatusOr<std::vector<std::string>> ListDirs(const std::string& path) override EXCLUDES(mu_);
  Status KillListed(const std::string& procs_file) override EXCLUDES(mu_);
  void Pause() override EXCLUDES(mu_);

  // Content as the kernel would show it; creates the file.
  void SetFile(const std::string& path, const std::string& content) EXCLUDES(mu_);
  void RemoveFile(const std::string& path) EXCLUDES(mu_);
  void AddProcess(const std::string& directory, pid_t pid) EXCLUDES(mu_);
  void DropProcess(pid_t pid) EXCLUDES(mu_);
  // Processes of which this says false are in no group.
  void SetLiveness(std::function<bool(pid_t)> alive) EXCLUDES(mu_);
  // `call` ("mkdir", "rmdir" or "join") on `directory` runs `hook` before it takes effect. Another
  // result than 0 is the errno with which it fails; below 0 it succeeds without any effect. The
  // hook may call this object.
  void Hook(const std::string& call, const std::string& directory, std::function<int()> hook)
      EXCLUDES(mu_);
  // Every successful call that moved a process: its pid and where to.
  std::vector<std::pair<pid_t, std::string>> Moves() EXCLUDES(mu_);
  // It survives kills until this many more pauses.
  void MakeStubborn(pid_t pid, int pauses) EXCLUDES(mu_);
  // rmdir says EBUSY this often although nothing is inside.
  void MakeBusy(const std::string& directory, int times) EXCLUDES(mu_);

 private:
  std::string ProcsLocked(const std::string& directory) REQUIRES(mu_);
  void DropDeadLocked() REQUIRES(mu_);
  int RunHook(const std::string& call, const std::string& directory) EXCLUDES(mu_);

  const bool v2_;
  const std::set<std::string> mounts_;
  Mutex mu_;
  std::map<std::string, std::string> files_ GUARDED_BY(mu_);
  std::map<std::string, std::set<pid_t>> directories_ GUARDED_BY(mu_);
  std::map<pid_t, int> stubborn_ GUARDED_BY(mu_);
  std::map<std::string, int> busy_ GUARDED_BY(mu_);
  std::function<bool(pid_t)> alive_ GUARDED_BY(mu_);
  std::vector<std::pair<pid_t, std::string>> moves_ GUARDED_BY(mu_);
  std::map<std::string, std::function<int()>> hooks_ GUARDED_BY(mu_);  // by "call directory"
};

}  // namespace torpor::os
