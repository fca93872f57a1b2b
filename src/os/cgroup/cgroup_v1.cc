#include <algorithm>

#include <fmt/format.h>

#include "os/cgroup/versions.h"

namespace torpor::os {
namespace {

constexpr int64_t kCpuPeriodUs = 100000;

class CgroupV1 : public CgroupTree {
 public:
  CgroupV1(const std::vector<std::pair<std::string, std::string>>& mounts,
           const std::string& parent, std::shared_ptr<CgroupFs> fs)
      : fs_(std::move(fs)) {
    for (const auto& [controller, mount] : mounts) {
      std::string base = mount + "/" + parent;
      bases_[controller] = base;
      // Controllers can share a mount (cpu,cpuacct).
      if (std::find(hierarchies_.begin(), hierarchies_.end(), base) == hierarchies_.end()) {
        hierarchies_.push_back(base);
      }
    }
  }

  int version() const override { return 1; }

  Status Create(const std::string& leaf, const CgroupLimits& limits) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    for (const std::string& base : hierarchies_) {
      Status made = fs_->MakeDir(base + "/" + leaf);
      if (!made.ok() && made.code() != Code::kAlreadyExists) return made;
    }
    ASSIGN_OR_RETURN(std::vector<pid_t> processes, Processes(leaf));
    if (!processes.empty()) {
      return Error(Code::kFailedPrecondition, "INTERNAL",
                   fmt::format("cgroup {} exists and holds process {}", leaf, processes.front()));
    }
    return SetLimits(leaf, limits);
  }

  Status SetLimits(const std::string& leaf, const CgroupLimits& limits) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    std::string memory = Path("memory", leaf);
    RETURN_IF_ERROR(fs_->Write(memory + "/memory.limit_in_bytes",
                               std::to_string(limits.memory_bytes > 0 ? limits.memory_bytes : -1)));
    // Guest memory that goes to swap would be a limit that nobody set.
    Status swap = fs_->Write(memory + "/memory.swappiness", limits.memory_bytes > 0 ? "0" : "60");
    if (!swap.ok() && swap.code() != Code::kNotFound) return swap;
    std::string cpu = Path("cpu", leaf);
    RETURN_IF_ERROR(fs_->Write(cpu + "/cpu.cfs_period_us", std::to_string(kCpuPeriodUs)));
    int64_t quota = limits.cpu_milli > 0 ? limits.cpu_milli * kCpuPeriodUs / 1000 : -1;
    RETURN_IF_ERROR(fs_->Write(cpu + "/cpu.cfs_quota_us", std::to_string(quota)));
    return fs_->Write(Path("pids", leaf) + "/pids.max", limits.processes_max > 0
                                                            ? std::to_string(limits.processes_max)
                                                            : std::string("max"));
  }

  // The `tasks` files: the start helper has one thread, and a thread that moves itself does not
  // wait for an RCU grace period as a write to cgroup.procs does (14 ms per start, measured).
  std::vector<std::string> ProcsFiles(const std::string& leaf) const override {
    std::vector<std::string> files;
    for (const std::string& base : hierarchies_) files.push_back(base + "/" + leaf + "/tasks");
    return files;
  }

  StatusOr<std::vector<pid_t>> Processes(const std::string& leaf) const override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    // A process killed between two joins is in some hierarchies only.
    std::vector<pid_t> all;
    for (const std::string& group : Groups(leaf)) {
      ASSIGN_OR_RETURN(auto pids, ReadProcesses(*fs_, group + "/cgroup.procs"));
      all.insert(all.end(), pids.begin(), pids.end());
    }
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

  Status KillAll(const std::string& leaf, MonotonicTime deadline) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    for (;;) {
      ASSIGN_OR_RETURN(std::vector<pid_t> processes, Processes(leaf));
      if (processes.empty()) {
        // For whoever is born in it next.
        return bases_.count("freezer") != 0 ? Freeze(leaf, false) : OkStatus();
      }
      if (std::chrono::steady_clock::now() >= deadline) {
        return Error(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                     fmt::format("process {} of cgroup {} does not end", processes.front(), leaf));
      }
      // Frozen, nothing can fork away between the list and the signals.
      if (bases_.count("freezer") != 0) RETURN_IF_ERROR(Freeze(leaf, true));
      for (const std::string& group : Groups(leaf)) {
        Status killed = fs_->KillListed(group + "/cgroup.procs");
        if (!killed.ok() && killed.code() != Code::kNotFound) return killed;
      }
      if (bases_.count("freezer") != 0) RETURN_IF_ERROR(Freeze(leaf, false));
      fs_->Pause();
    }
  }

  Status Freeze(const std::string& leaf, bool frozen) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    if (bases_.count("freezer") == 0) {
      return Error(Code::kFailedPrecondition, "INTERNAL", "no freezer hierarchy is mounted");
    }
    Status status =
        fs_->Write(Path("freezer", leaf) + "/freezer.state", frozen ? "FROZEN" : "THAWED");
    return status.code() == Code::kNotFound ? OkStatus() : status;
  }

  StatusOr<bool> IsFrozen(const std::string& leaf) const override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    if (bases_.count("freezer") == 0) return false;
    ASSIGN_OR_RETURN(std::string state, fs_->Read(Path("freezer", leaf) + "/freezer.state"));
    return state.substr(0, state.find('\n')) == "FROZEN";
  }

  StatusOr<CgroupUsage> Usage(const std::string& leaf) const override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    std::string memory = Path("memory", leaf);
    CgroupUsage usage;
    usage.memory_current_bytes = ReadNumber(*fs_, memory + "/memory.usage_in_bytes", 0);
    usage.memory_peak_bytes = ReadNumber(*fs_, memory + "/memory.max_usage_in_bytes", 0);
    auto stat = ReadKeyed(*fs_, memory + "/memory.stat");
    usage.memory_working_set_bytes =
        std::max<int64_t>(0, usage.memory_current_bytes - stat["total_inactive_file"]);
    usage.oom_kills = ReadKeyed(*fs_, memory + "/memory.oom_control")["oom_kill"];
    usage.limit_hits = ReadNumber(*fs_, memory + "/memory.failcnt", 0);
    if (bases_.count("cpuacct") != 0) {
      usage.cpu_usage_us = ReadNumber(*fs_, Path("cpuacct", leaf) + "/cpuacct.usage", 0) / 1000;
    }
    return usage;
  }

  Status Remove(const std::string& leaf) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    Status first;
    for (const std::string& group : Groups(leaf)) {
      Status removed = RemoveGroup(*fs_, group);
      if (first.ok()) first = std::move(removed);
    }
    return first;
  }

  Status CreateSibling(const std::string& leaf) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    const std::string path = Path("memory", SiblingOf(leaf));
    RETURN_IF_ERROR(MakeEmptyGroup(*fs_, path));
    RETURN_IF_ERROR(fs_->Write(path + "/memory.limit_in_bytes", "-1"));
    // Charges must not move along. Newer kernels cannot move them and complain when asked not to.
    const std::string moves = path + "/memory.move_charge_at_immigrate";
    return ReadNumber(*fs_, moves, 0) == 0 ? OkStatus() : fs_->Write(moves, "0");
  }

  Status RemoveSibling(const std::string& leaf) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    return RemoveGroup(*fs_, Path("memory", SiblingOf(leaf)));
  }

  StatusOr<std::vector<pid_t>> ProcessesOf(const std::string& leaf,
                                           CgroupSide side) const override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    return ReadProcesses(*fs_, Side(leaf, side) + "/cgroup.procs");
  }

  StatusOr<bool> Move(const std::string& leaf, pid_t pid, CgroupSide to) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    return JoinGroup(*fs_, Side(leaf, to), pid);
  }

  Status RemoveParent() override {
    Status first;
    for (const std::string& base : hierarchies_) {
      Status removed = RemoveGroup(*fs_, base);
      if (first.ok()) first = std::move(removed);
    }
    return first;
  }

  StatusOr<std::vector<std::string>> Leaves() const override {
    std::vector<std::string> all;
    for (const std::string& base : hierarchies_) {
      ASSIGN_OR_RETURN(auto names, fs_->ListDirs(base));
      all.insert(all.end(), names.begin(), names.end());
    }
    return LeavesOf(all);
  }

 private:
  std::string Path(const std::string& controller, const std::string& leaf) const {
    return bases_.at(controller) + "/" + leaf;
  }
  std::string Side(const std::string& leaf, CgroupSide side) const {
    return Path("memory", side == CgroupSide::kLeaf ? leaf : SiblingOf(leaf));
  }
  // Every directory of a leaf, the sibling's last.
  std::vector<std::string> Groups(const std::string& leaf) const {
    std::vector<std::string> groups;
    for (const std::string& base : hierarchies_) groups.push_back(base + "/" + leaf);
    groups.push_back(Path("memory", SiblingOf(leaf)));
    return groups;
  }

  const std::shared_ptr<CgroupFs> fs_;
  std::map<std::string, std::string> bases_;  // by controller; const after construction
  std::vector<std::string> hierarchies_;      // distinct bases; const after construction
};

}  // namespace

StatusOr<std::unique_ptr<CgroupTree>> OpenCgroupV1(
    const std::vector<std::pair<std::string, std::string>>& mounts, const std::string& parent,
    std::shared_ptr<CgroupFs> fs) {
  for (const auto& [controller, mount] : mounts) RETURN_IF_ERROR(MakeDirs(*fs, mount, parent));
  return std::make_unique<CgroupV1>(mounts, parent, std::move(fs));
}

}  // namespace torpor::os
