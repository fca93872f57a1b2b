#include "base/time.h"

#include <cmath>
#include <cstdlib>
#include <ctime>

#include <fmt/format.h>

namespace torpor {
namespace {

class RealClock : public Clock {
 public:
  MonotonicTime Now() const override { return std::chrono::steady_clock::now(); }
  WallTime WallNow() const override { return std::chrono::system_clock::now(); }
};

}  // namespace

Clock* Clock::Real() {
  // Never destroyed: threads that outlive main() may still ask for the time.
  static RealClock* const clock = new RealClock;
  return clock;
}

MonotonicTime FakeClock::Now() const {
  MutexLock lock(&mu_);
  return MonotonicTime(offset_);
}

WallTime FakeClock::WallNow() const {
  MutexLock lock(&mu_);
  return WallTime(std::chrono::duration_cast<WallTime::duration>(offset_));
}

void FakeClock::Advance(Duration by) {
  MutexLock lock(&mu_);
  offset_ += by;
}

google::protobuf::Timestamp ToProto(WallTime t) {
  google::protobuf::Timestamp out;
  auto ns = std::chrono::duration_cast<Duration>(t.time_since_epoch()).count();
  int64_t seconds = ns / 1000000000;
  int64_t nanos = ns % 1000000000;
  if (nanos < 0) {
    nanos += 1000000000;
    --seconds;
  }
  out.set_seconds(seconds);
  out.set_nanos(static_cast<int32_t>(nanos));
  return out;
}

WallTime FromProto(const google::protobuf::Timestamp& t) {
  return WallTime(std::chrono::duration_cast<WallTime::duration>(std::chrono::seconds(t.seconds()) +
                                                                 Duration(t.nanos())));
}

google::protobuf::Duration ToProto(Duration d) {
  google::protobuf::Duration out;
  out.set_seconds(d.count() / 1000000000);
  out.set_nanos(static_cast<int32_t>(d.count() % 1000000000));
  return out;
}

Duration FromProto(const google::protobuf::Duration& d) {
  // Saturates: a client may send any 64-bit number of seconds.
  constexpr int64_t kMaxSeconds = 9000000000;
  int64_t seconds = std::min(std::max(d.seconds(), -kMaxSeconds), kMaxSeconds);
  return std::chrono::seconds(seconds) + Duration(d.nanos());
}

double ToMs(Duration d) { return static_cast<double>(d.count()) / 1e6; }

std::string FormatRfc3339(WallTime t) {
  auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(t.time_since_epoch()).count();
  time_t seconds = static_cast<time_t>(ms / 1000);
  tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900,
                     parts.tm_mon + 1, parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec,
                     ms % 1000);
}

StatusOr<Duration> ParseDuration(std::string_view text) {
  auto bad = [&] {
    return Error(Code::kInvalidArgument, "FIELD_INVALID",
                 fmt::format("'{}' is not a duration; write it like 250ms, 30s, 1m30s or 2h",
                             std::string(text)));
  };
  if (text == "0") return Duration(0);
  if (text.empty()) return bad();
  std::string buffer(text);
  const char* p = buffer.c_str();
  double total_ns = 0;
  while (*p != '\0') {
    if (*p < '0' || *p > '9') return bad();
    char* end = nullptr;
    double value = strtod(p, &end);
    std::string_view unit(end);
    double scale = 0;
    size_t length = 1;
    if (unit.substr(0, 2) == "ms") {
      scale = 1e6, length = 2;
    } else if (unit.substr(0, 2) == "us") {
      scale = 1e3, length = 2;
    } else if (unit.substr(0, 2) == "ns") {
      scale = 1, length = 2;
    } else if (unit.substr(0, 1) == "s") {
      scale = 1e9;
    } else if (unit.substr(0, 1) == "m") {
      scale = 60e9;
    } else if (unit.substr(0, 1) == "h") {
      scale = 3600e9;
    } else if (unit.substr(0, 1) == "d") {
      scale = 86400e9;
    } else {
      return bad();
    }
    total_ns += value * scale;
    p = end + length;
  }
  if (!std::isfinite(total_ns) || total_ns > 9e18) return bad();
  return Duration(static_cast<int64_t>(total_ns));
}

std::string FormatDuration(Duration d) {
  double ms = ToMs(d);
  if (ms < 1000) return fmt::format("{:.3g}ms", ms);
  int64_t seconds = static_cast<int64_t>(ms / 1000);
  if (seconds < 60) return fmt::format("{:.3g}s", ms / 1000);
  if (seconds < 3600) return fmt::format("{}m{}s", seconds / 60, seconds % 60);
  if (seconds < 86400) return fmt::format("{}h{}m", seconds / 3600, seconds / 60 % 60);
  return fmt::format("{}d{}h", seconds / 86400, seconds / 3600 % 24);
}

}  // namespace torpor
