#include "os/cgroup/testing/fake_cgroup_fs.h"

#include <errno.h>

#include <algorithm>

namespace torpor::os {
namespace {

std::string DirectoryOf(const std::string& path) { return path.substr(0, path.rfind('/')); }
std::string NameOf(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

FakeCgroupFs::FakeCgroupFs(bool v2, const std::set<std::string>& mounts)
    : v2_(v2), mounts_(mounts) {
  for (const std::string& mount : mounts) {
    directories_[mount];
    if (!v2_) continue;
    files_[mount + "/cgroup.controllers"] = "cpuset cpu io memory pids\n";
    files_[mount + "/cgroup.subtree_control"] = "";
  }
}

int FakeCgroupFs::RunHook(const std::string& call, const std::string& directory) {
  std::function<int()> hook;
  {
    MutexLock lock(&mu_);
    auto it = hooks_.find(call + " " + directory);
    if (it != hooks_.end()) hook = it->second;
  }
  return hook ? hook() : 0;
}

Status FakeCgroupFs::MakeDir(const std::string& path) {
  if (int error = RunHook("mkdir", path); error != 0) return ErrnoStatus(error, "mkdir " + path);
  MutexLock lock(&mu_);
  if (directories_.count(path) != 0) return ErrnoStatus(EEXIST, "mkdir " + path);
  if (directories_.count(DirectoryOf(path)) == 0) return ErrnoStatus(ENOENT, "mkdir " + path);
  directories_[path];
  static const char* const kV1[] = {"memory.limit_in_bytes",
                                    "memory.swappiness",
                                    "memory.move_charge_at_immigrate",
                                    "cpu.cfs_period_us",
                                    "cpu.cfs_quota_us",
                                    "pids.max",
                                    "freezer.state",
                                    "tasks"};
  static const char* const kV2[] = {
      "memory.max",  "memory.swap.max",       "cpu.max", "pids.max", "cgroup.freeze",
      "cgroup.kill", "cgroup.subtree_control"};
  if (v2_) {
    for (const char* file : kV2) files_[path + "/" + file] = "";
  } else {
    for (const char* file : kV1) files_[path + "/" + file] = "";
  }
  return OkStatus();
}

Status FakeCgroupFs::RemoveDir(const std::string& path) {
  if (int error = RunHook("rmdir", path); error != 0) return ErrnoStatus(error, "rmdir " + path);
  MutexLock lock(&mu_);
  DropDeadLocked();
  auto it = directories_.find(path);
  if (it == directories_.end()) return ErrnoStatus(ENOENT, "rmdir " + path);
  auto next = std::next(it);
  bool has_child =
      next != directories_.end() && next->first.compare(0, path.size() + 1, path + "/") == 0;
  if (!it->second.empty() || has_child) return ErrnoStatus(EBUSY, "rmdir " + path);
  if (busy_[path] > 0) {
    --busy_[path];
    return ErrnoStatus(EBUSY, "rmdir " + path);
  }
  directories_.erase(it);
  for (auto file = files_.lower_bound(path + "/");
       file != files_.end() && file->first.compare(0, path.size() + 1, path + "/") == 0;) {
    file = files_.erase(file);
  }
  return OkStatus();
}

void FakeCgroupFs::DropDeadLocked() {
  if (!alive_) return;
  for (auto& [directory, pids] : directories_) {
    for (auto it = pids.begin(); it != pids.end();)
      it = alive_(*it) ? std::next(it) : pids.erase(it);
  }
}

int FakeCgroupFs::Join(const std::string& procs_file, pid_t pid) {
  const std::string directory = DirectoryOf(procs_file);
  if (int error = RunHook("join", directory); error != 0) return std::max(error, 0);
  MutexLock lock(&mu_);
  DropDeadLocked();
  if (directories_.count(directory) == 0) return ENOENT;
  bool known = false;
  for (const std::string& mount : mounts_) {
    if (directory.compare(0, mount.size() + 1, mount + "/") != 0) continue;
    for (auto& [other, pids] : directories_) {
      if (other.compare(0, mount.size() + 1, mount + "/") == 0)
        known = pids.erase(pid) > 0 || known;
    }
  }
  if (!known) return ESRCH;
  directories_[directory].insert(pid);
  moves_.emplace_back(pid, directory);
  return 0;
}

std::string FakeCgroupFs::ProcsLocked(const std::string& directory) {
  DropDeadLocked();
  std::string out;
  for (pid_t pid : directories_[directory]) out += std::to_string(pid) + "\n";
  return out;
}

StatusOr<std::string> FakeCgroupFs::Read(const std::string& path) {
  MutexLock lock(&mu_);
  if (NameOf(path) == "cgroup.procs" && directories_.count(DirectoryOf(path)) != 0) {
    return ProcsLocked(DirectoryOf(path));
  }
  auto it = files_.find(path);
  if (it == files_.end()) return ErrnoStatus(ENOENT, "open " + path);
  return it->second;
}

Status FakeCgroupFs::Write(const std::string& path, const std::string& value) {
  {
    MutexLock lock(&mu_);
    auto it = files_.find(path);
    if (it == files_.end()) return ErrnoStatus(ENOENT, "open " + path);
    it->second = value;
  }
  return NameOf(path) == "cgroup.kill" ? KillListed(DirectoryOf(path) + "/cgroup.procs")
                                       : OkStatus();
}

StatusOr<std::vector<std::string>> FakeCgroupFs::ListDirs(const std::string& path) {
  MutexLock lock(&mu_);
  if (directories_.count(path) == 0) return ErrnoStatus(ENOENT, "opendir " + path);
  std::vector<std::string> names;
  for (const auto& [directory, pids] : directories_) {
    if (DirectoryOf(directory) == path) names.push_back(NameOf(directory));
  }
  return names;
}

Status FakeCgroupFs::KillListed(const std::string& procs_file) {
  MutexLock lock(&mu_);
  auto it = directories_.find(DirectoryOf(procs_file));
  if (it == directories_.end()) return ErrnoStatus(ENOENT, "open " + procs_file);
  // A frozen v1 group keeps its killed processes until it is thawed; Pause is the earliest moment.
  for (pid_t pid : it->second) stubborn_.emplace(pid, 0);
  return OkStatus();
}

void FakeCgroupFs::Pause() {
  MutexLock lock(&mu_);
  for (auto it = stubborn_.begin(); it != stubborn_.end();) {
    if (it->second-- > 0) {
      ++it;
      continue;
    }
    for (auto& [directory, pids] : directories_) {
      if (files_[directory + "/freezer.state"] != "FROZEN") pids.erase(it->first);
    }
    it = stubborn_.erase(it);
  }
}

void FakeCgroupFs::SetFile(const std::string& path, const std::string& content) {
  MutexLock lock(&mu_);
  files_[path] = content;
}

void FakeCgroupFs::RemoveFile(const std::string& path) {
  MutexLock lock(&mu_);
  files_.erase(path);
}

void FakeCgroupFs::AddProcess(const std::string& directory, pid_t pid) {
  MutexLock lock(&mu_);
  directories_[directory].insert(pid);
}

void FakeCgroupFs::DropProcess(pid_t pid) {
  MutexLock lock(&mu_);
  for (auto& [directory, pids] : directories_) pids.erase(pid);
}

void FakeCgroupFs::SetLiveness(std::function<bool(pid_t)> alive) {
  MutexLock lock(&mu_);
  alive_ = std::move(alive);
}

void FakeCgroupFs::Hook(const std::string& call, const std::string& directory,
                        std::function<int()> hook) {
  MutexLock lock(&mu_);
  hooks_[call + " " + directory] = std::move(hook);
}

std::vector<std::pair<pid_t, std::string>> FakeCgroupFs::Moves() {
  MutexLock lock(&mu_);
  return moves_;
}

void FakeCgroupFs::MakeStubborn(pid_t pid, int pauses) {
  MutexLock lock(&mu_);
  stubborn_[pid] = pauses;
}

void FakeCgroupFs::MakeBusy(const std::string& directory, int times) {
  MutexLock lock(&mu_);
  busy_[directory] = times;
}

}  // namespace torpor::os
