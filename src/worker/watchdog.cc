#include "worker/watchdog.h"

namespace torpor::worker {

MemorySample SampleOf(const os::CgroupUsage& usage, int64_t limit_bytes, MonotonicTime now) {
  return {.time = now,
          .limit_bytes = limit_bytes,
          .current_bytes = usage.memory_current_bytes,
          .cache_bytes = usage.memory_current_bytes - usage.memory_working_set_bytes,
          .limit_hits = usage.limit_hits,
          .full_pressure = usage.memory_full_percent};
}

// Whether the time from the last sample to this one was lost.
bool ReclaimWatchdog::Suffers(const MemorySample& sample) const {
  if (!last_.has_value() || sample.limit_bytes <= 0) return false;
  if (sample.time - last_->time > patience_ / 2) return false;
  if (sample.current_bytes < sample.limit_bytes - kAtLimitBytes) return false;
  if (sample.cache_bytes > kCacheBytesMax) return false;
  const int64_t hits = sample.limit_hits - last_->limit_hits;
  if (hits <= 0) return false;
  if (sample.full_pressure.has_value()) return *sample.full_pressure > kPressureMax;
  const double seconds = std::chrono::duration<double>(sample.time - last_->time).count();
  return static_cast<double>(hits) > seconds * static_cast<double>(kHitsPerSecondMax);
}

bool ReclaimWatchdog::IsStuck(const MemorySample& sample) {
  if (!Suffers(sample)) {
    since_.reset();
  } else if (!since_.has_value()) {
    since_ = last_->time;
  }
  last_ = sample;
  return since_.has_value() && sample.time - *since_ >= patience_;
}

}  // namespace torpor::worker
