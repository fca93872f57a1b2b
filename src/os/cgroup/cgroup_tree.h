#pragma once
// The cgroups of a worker's sandboxes: one leaf per actor, with limits, below one parent group.
//
// Works on cgroup v2 (when memory, cpu and pids are there) and on v1 (the same path in each
// hierarchy: memory, cpu, cpuacct, pids, freezer), chosen by what is mounted. A process is born in
// a leaf: its start helper writes itself into the files of ProcsFiles() before it executes
// anything.
//
// A leaf can have a sibling, <leaf>_ckpt: a group without limits beside it into which one process
// moves for the time of a capture, so that what it writes is not charged to the leaf. On v1 it
// exists in the memory hierarchy only; what is charged already stays where it is. The sibling
// belongs to its leaf: Processes, KillAll, Freeze, Remove and Leaves mean both.
//
// Thread-safe for different leaves; calls for one leaf are serialised by the caller. Every call
// ignores a leaf that does not exist, except Create and SetLimits.
//
// Errors: INVALID_ARGUMENT for a leaf name that is not one component of A-Za-z0-9._- or ends like a
// sibling's, NOT_FOUND,
// FAILED_PRECONDITION when a leaf still holds processes, else by errno.

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"

namespace torpor::os {

// What the sandbox needs beside the guest's memory: sentry, gofer, page tables. Part of the limit
// and of admission, because a limit below the natural size ends in a livelock, not in an OOM kill.
inline constexpr int64_t kSandboxOverheadBytes = int64_t{64} << 20;
inline constexpr int64_t kSandboxProcessesMax = 4096;

struct CgroupLimits {
  int64_t memory_bytes = 0;   // 0 = unlimited
  int64_t cpu_milli = 0;      // thousandths of a core; 0 = unlimited
  int64_t processes_max = 0;  // 0 = unlimited
  bool operator==(const CgroupLimits&) const = default;
};

// The limits of a leaf for a template with this memory and cpu (0 = unlimited).
CgroupLimits LimitsForSandbox(int64_t memory_bytes, int64_t cpu_milli);

struct CgroupUsage {
  int64_t memory_current_bytes = 0;
  int64_t memory_peak_bytes = 0;
  int64_t memory_working_set_bytes = 0;  // current without inactive file pages
  int64_t cpu_usage_us = 0;
  int64_t oom_kills = 0;
  int64_t limit_hits = 0;  // how often the memory limit was reached
  // Share of the last 10 s in which nothing in the leaf could go on for want of memory, in percent;
  // only v2 tells it per group.
  std::optional<double> memory_full_percent;
};

class CgroupFs;

enum class CgroupSide { kLeaf, kSibling };

class CgroupTree {
 public:
  // `parent` is relative to the hierarchies' mount points, e.g. "torpor/gvisor-0"; it is made.
  // FAILED_PRECONDITION when neither version offers memory, cpu and pids.
  static StatusOr<std::unique_ptr<CgroupTree>> Open(const std::string& parent);

  virtual ~CgroupTree() = default;
  virtual int version() const = 0;  // 1 or 2
  // A leaf that exists is taken over if it is empty.
  virtual Status Create(const std::string& leaf, const CgroupLimits& limits) = 0;
  virtual Status SetLimits(const std::string& leaf, const CgroupLimits& limits) = 0;
  // Absolute paths; one with v2, one per hierarchy with v1.
  virtual std::vector<std::string> ProcsFiles(const std::string& leaf) const = 0;
  virtual StatusOr<std::vector<pid_t>> Processes(const std::string& leaf) const = 0;
  // Kills every process and returns when the leaf is empty; DEADLINE_EXCEEDED. Thaws it.
  virtual Status KillAll(const std::string& leaf, MonotonicTime deadline) = 0;
  // Asks for it; a process that is inside the kernel stops a little later.
  virtual Status Freeze(const std::string& leaf, bool frozen) = 0;
  // Whether every process has stopped after Freeze.
  virtual StatusOr<bool> IsFrozen(const std::string& leaf) const = 0;
  virtual StatusOr<CgroupUsage> Usage(const std::string& leaf) const = 0;
  // The leaf must hold no process.
  virtual Status Remove(const std::string& leaf) = 0;

  // An empty sibling that exists is taken over; one with a process is FAILED_PRECONDITION.
  virtual Status CreateSibling(const std::string& leaf) = 0;
  virtual Status RemoveSibling(const std::string& leaf) = 0;
  // The processes whose memory is charged to this side.
  virtual StatusOr<std::vector<pid_t>> ProcessesOf(const std::string& leaf,
                                                   CgroupSide side) const = 0;
  // False when there is no such process any more. NOT_FOUND means that the group is missing: the
  // process was not moved. The caller sees to it that the pid means the process it should mean.
  virtual StatusOr<bool> Move(const std::string& leaf, pid_t pid, CgroupSide to) = 0;

  // Also those of which only a sibling is left.
  virtual StatusOr<std::vector<std::string>> Leaves() const = 0;
  // The parent given to Open (its last component), which must have no leaves any more.
  virtual Status RemoveParent() = 0;
};

// For tests: a tree over a given file layer.
struct CgroupMounts {
  std::string v2;                                       // empty = not mounted
  std::vector<std::pair<std::string, std::string>> v1;  // {"memory", "/sys/fs/cgroup/memory"}
};
// What /proc/self/mountinfo says.
CgroupMounts ParseCgroupMounts(std::string_view mountinfo);
StatusOr<std::unique_ptr<CgroupTree>> OpenCgroupTree(const CgroupMounts& mounts,
                                                     const std::string& parent,
                                                     std::shared_ptr<CgroupFs> fs);

}  // namespace torpor::os
