#include <algorithm>
#include <sstream>

#include <fmt/format.h>

#include "os/cgroup/versions.h"

namespace torpor::os {
namespace {

constexpr int64_t kCpuPeriodUs = 100000;

std::string OrMax(int64_t value) { return value > 0 ? std::to_string(value) : "max"; }

class CgroupV2 : public CgroupTree {
 public:
  CgroupV2(std::string base, std::shared_ptr<CgroupFs> fs)
      : base_(std::move(base)), fs_(std::move(fs)) {}

  int version() const override { return 2; }

  Status Create(const std::string& leaf, const CgroupLimits& limits) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    Status made = fs_->MakeDir(Path(leaf));
    if (!made.ok() && made.code() != Code::kAlreadyExists) return made;
    ASSIGN_OR_RETURN(std::vector<pid_t> processes, Processes(leaf));
    if (!processes.empty()) {
      return Error(Code::kFailedPrecondition, "INTERNAL",
                   fmt::format("cgroup {} exists and holds process {}", leaf, processes.front()));
    }
    return SetLimits(leaf, limits);
  }

  Status SetLimits(const std::string& leaf, const CgroupLimits& limits) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    const std::string path = Path(leaf);
    RETURN_IF_ERROR(fs_->Write(path + "/memory.max", OrMax(limits.memory_bytes)));
    // Swapped guest memory would make a limit that nobody set; absent without swap support.
    Status swap = fs_->Write(path + "/memory.swap.max", limits.memory_bytes > 0 ? "0" : "max");
    if (!swap.ok() && swap.code() != Code::kNotFound) return swap;
    std::string quota = OrMax(limits.cpu_milli * kCpuPeriodUs / 1000);
    RETURN_IF_ERROR(fs_->Write(path + "/cpu.max", fmt::format("{} {}", quota, kCpuPeriodUs)));
    return fs_->Write(path + "/pids.max", OrMax(limits.processes_max));
  }

  std::vector<std::string> ProcsFiles(const std::string& leaf) const override {
    return {Path(leaf) + "/cgroup.procs"};
  }

  StatusOr<std::vector<pid_t>> Processes(const std::string& leaf) const override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    ASSIGN_OR_RETURN(auto pids, ProcessesOf(leaf, CgroupSide::kLeaf));
    ASSIGN_OR_RETURN(auto apart, ProcessesOf(leaf, CgroupSide::kSibling));
    pids.insert(pids.end(), apart.begin(), apart.end());
    return pids;
  }

  Status KillAll(const std::string& leaf, MonotonicTime deadline) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    for (;;) {
      ASSIGN_OR_RETURN(std::vector<pid_t> processes, Processes(leaf));
      if (processes.empty()) return Freeze(leaf, false);  // for whoever is born in it next
      if (std::chrono::steady_clock::now() >= deadline) {
        return Error(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                     fmt::format("process {} of cgroup {} does not end", processes.front(), leaf));
      }
      // Frozen processes die as well, so there is nothing to thaw.
      for (const std::string& group : Groups(leaf)) {
        Status killed = fs_->Write(group + "/cgroup.kill", "1");
        if (killed.code() == Code::kNotFound) {  // before Linux 5.14, or no such group
          killed = fs_->KillListed(group + "/cgroup.procs");
        }
        if (!killed.ok() && killed.code() != Code::kNotFound) return killed;
      }
      fs_->Pause();
    }
  }

  Status Freeze(const std::string& leaf, bool frozen) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    for (const std::string& group : Groups(leaf)) {
      Status status = fs_->Write(group + "/cgroup.freeze", frozen ? "1" : "0");
      if (!status.ok() && status.code() != Code::kNotFound) return status;
    }
    return OkStatus();
  }

  StatusOr<bool> IsFrozen(const std::string& leaf) const override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    return ReadKeyed(*fs_, Path(leaf) + "/cgroup.events")["frozen"] == 1;
  }

  StatusOr<CgroupUsage> Usage(const std::string& leaf) const override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    const std::string path = Path(leaf);
    CgroupUsage usage;
    usage.memory_current_bytes = ReadNumber(*fs_, path + "/memory.current", 0);
    usage.memory_peak_bytes =
        ReadNumber(*fs_, path + "/memory.peak", usage.memory_current_bytes);  // since Linux 5.19
    auto stat = ReadKeyed(*fs_, path + "/memory.stat");
    usage.memory_working_set_bytes =
        std::max<int64_t>(0, usage.memory_current_bytes - stat["inactive_file"]);
    auto events = ReadKeyed(*fs_, path + "/memory.events");
    usage.oom_kills = events["oom_kill"];
    usage.limit_hits = events["max"];
    usage.memory_full_percent = ReadFullPressure(*fs_, path + "/memory.pressure");
    usage.cpu_usage_us = ReadKeyed(*fs_, path + "/cpu.stat")["usage_usec"];
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
    const std::string path = Path(SiblingOf(leaf));
    RETURN_IF_ERROR(MakeEmptyGroup(*fs_, path));
    return fs_->Write(path + "/memory.max", "max");
  }

  Status RemoveSibling(const std::string& leaf) override {
    RETURN_IF_ERROR(CheckLeafName(leaf));
    return RemoveGroup(*fs_, Path(SiblingOf(leaf)));
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

  Status RemoveParent() override { return RemoveGroup(*fs_, base_); }

  StatusOr<std::vector<std::string>> Leaves() const override {
    ASSIGN_OR_RETURN(std::vector<std::string> names, fs_->ListDirs(base_));
    return LeavesOf(names);
  }

 private:
  std::string Path(const std::string& leaf) const { return base_ + "/" + leaf; }
  std::string Side(const std::string& leaf, CgroupSide side) const {
    return Path(side == CgroupSide::kLeaf ? leaf : SiblingOf(leaf));
  }
  // Both directories of a leaf, the sibling's last.
  std::vector<std::string> Groups(const std::string& leaf) const {
    return {Side(leaf, CgroupSide::kLeaf), Side(leaf, CgroupSide::kSibling)};
  }

  const std::string base_;
  const std::shared_ptr<CgroupFs> fs_;
};

}  // namespace

StatusOr<std::unique_ptr<CgroupTree>> OpenCgroupV2(const std::string& mount,
                                                   const std::string& parent,
                                                   std::shared_ptr<CgroupFs> fs) {
  RETURN_IF_ERROR(MakeDirs(*fs, mount, parent));
  // Controllers are handed down level by level, from the mount to the parent of the leaves.
  std::string path = mount;
  std::istringstream parts(parent);
  std::string part;
  do {
    Status enabled = fs->Write(path + "/cgroup.subtree_control", "+memory +cpu +pids");
    if (!enabled.ok()) return Annotate(enabled, "controllers cannot be handed down from " + path);
    if (!std::getline(parts, part, '/')) break;
    path += "/" + part;
  } while (true);
  return std::make_unique<CgroupV2>(path, std::move(fs));
}

}  // namespace torpor::os
