#pragma once
// What is known of the machine, how busy it is, and the lock that keeps two benchmarks apart.

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "bench/result.h"

namespace torpor::bench {

// Held until destruction. FAILED_PRECONDITION when another benchmark runs on this machine.
class MachineLock {
 public:
  static StatusOr<MachineLock> Take(const std::string& path = "/run/lock/torpor-bench.lock");

 private:
  explicit MachineLock(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

// `dir` decides the file system.
Machine ReadMachine(const std::string& dir);
MachineLoad ReadLoad();
// Version, flags and hash of this program; `revision` as the caller knows it.
Build ReadBuild(const std::string& revision);

// One process of the process table.
struct ProcessTime {
  pid_t pid = 0;
  pid_t parent = 0;
  int64_t ticks = 0;  // its own cpu time and that of the children it has waited for
};
// From the text of /proc/<pid>/stat; nothing when it is not one.
std::optional<ProcessTime> ParseProcessStat(const std::string& text);
std::vector<ProcessTime> ReadProcessTable();
// `root` and everything below it.
std::vector<pid_t> PidsBelow(const std::vector<ProcessTime>& table, pid_t root);
// Processor time of all threads so far, in nanoseconds, without threads of that name; 0 when there
// is no such process.
int64_t CpuNs(pid_t pid, const std::string& without_thread = "");
// Proportional set size in bytes; 0 when there is no such process.
int64_t PssBytes(pid_t pid);

// Ticks of the processes that are neither kernel threads nor below one of `roots`.
int64_t TicksOfOthers(const std::vector<ProcessTime>& table, const std::vector<pid_t>& roots);

// Cpu time between two moments.
class CpuWatch {
 public:
  // `roots`: the driver and the supervisor of the Torpor under test.
  explicit CpuWatch(std::vector<pid_t> roots);
  // Sets driver_cpu, steal_percent and other_cpu.
  void Finish(Repeat* repeat) const;

 private:
  struct Sample {
    MonotonicTime time;
    int64_t all = 0, steal = 0, others = 0;  // ticks
    double driver = 0;                       // seconds
  };
  Sample Take() const;
  const std::vector<pid_t> roots_;
  const Sample begin_;
};

}  // namespace torpor::bench
