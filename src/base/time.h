#pragma once
// Time. Monotonic and wall time are different types; a Clock is injected wherever time decides.
//
// MonotonicTime measures and bounds (steady_clock); WallTime is shown and stored (system_clock).
// Neither converts to the other.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include <google/protobuf/duration.pb.h>
#include <google/protobuf/timestamp.pb.h>

#include "base/status.h"
#include "base/sync.h"

namespace torpor {

using Duration = std::chrono::nanoseconds;
using MonotonicTime = std::chrono::steady_clock::time_point;
using WallTime = std::chrono::system_clock::time_point;

// Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual MonotonicTime Now() const = 0;
  virtual WallTime WallNow() const = 0;
  static Clock* Real();
};

// For tests: time moves only by Advance. Thread-safe.
class FakeClock : public Clock {
 public:
  MonotonicTime Now() const override EXCLUDES(mu_);
  WallTime WallNow() const override EXCLUDES(mu_);
  void Advance(Duration by) EXCLUDES(mu_);

 private:
  mutable Mutex mu_;
  Duration offset_ GUARDED_BY(mu_) = std::chrono::hours(24 * 365 * 50);
};

google::protobuf::Timestamp ToProto(WallTime t);
WallTime FromProto(const google::protobuf::Timestamp& t);
google::protobuf::Duration ToProto(Duration d);
Duration FromProto(const google::protobuf::Duration& d);

double ToMs(Duration d);
// "2026-11-30T18:00:00.123Z"
std::string FormatRfc3339(WallTime t);
// "1.5s", "250ms", "2h", "1m30s" or "0"; INVALID_ARGUMENT names what is allowed.
StatusOr<Duration> ParseDuration(std::string_view text);
// "1.5s", "250ms", "2h3m"
std::string FormatDuration(Duration d);

}  // namespace torpor
