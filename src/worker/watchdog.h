#pragma once
// Finds guests that are stuck at their memory limit.
//
// The memory of a sandbox cannot be swapped, and when nearly all of it is in use the kernel may go
// on reclaiming the same few pages for ever instead of ending a process: the guest neither works
// nor dies. Such a guest is ended here, as out of memory. The decision is pure; the caller samples.

#include <cstdint>
#include <optional>

#include "base/time.h"
#include "os/cgroup/cgroup_tree.h"

namespace torpor::worker {

struct MemorySample {
  MonotonicTime time;
  int64_t limit_bytes = 0;  // 0 = unlimited
  int64_t current_bytes = 0;
  int64_t cache_bytes = 0;  // of these: file pages that are given back when room is needed
  int64_t limit_hits = 0;   // so far
  // Share of time in which no task of the sandbox could go on for want of memory, in percent; unset
  // where the kernel does not say it per group (cgroup v1).
  std::optional<double> full_pressure;
};

MemorySample SampleOf(const os::CgroupUsage& usage, int64_t limit_bytes, MonotonicTime now);

struct MemoryWatch {
  Duration every = std::chrono::seconds(2);  // between samples
  Duration patience = std::chrono::seconds(20);
};

// Of one sandbox. Not thread-safe.
class ReclaimWatchdog {
 public:
  static constexpr int64_t kAtLimitBytes = 4 << 20;  // that near counts as reached
  // With more cache than this a full group only means that files were read or written.
  static constexpr int64_t kCacheBytesMax = 16 << 20;
  static constexpr double kPressureMax = 50;          // percent
  static constexpr int64_t kHitsPerSecondMax = 1000;  // where there is no pressure value

  explicit ReclaimWatchdog(Duration patience) : patience_(patience) {}

  // True when the guest has made no progress for the patience: in every sample of that time it was
  // at its limit, hit it again, and was held up by it. One sample that differs begins anew; so does
  // a pause of more than half the patience between samples, because nobody looked meanwhile.
  bool IsStuck(const MemorySample& sample);

 private:
  bool Suffers(const MemorySample& sample) const;

  Duration patience_;
  std::optional<MemorySample> last_;
  std::optional<MonotonicTime> since_;
};

}  // namespace torpor::worker
