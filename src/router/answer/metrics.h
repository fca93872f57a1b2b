#pragma once
// Counters and histograms of the router, in Prometheus text form. No label names an actor or an
// atespace, so their number is bounded. Thread-safe.

#include <array>
#include <atomic>
#include <map>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "router/h1/rules.h"
#include "router/park/wake_report.h"

namespace torpor::router {

class Histogram {
 public:
  void Observe(Duration d);
  // Lines `name_bucket{labels,le="..."}`, `name_sum`, `name_count`.
  void Render(std::string_view name, std::string_view labels, std::string* out) const;

 private:
  static constexpr std::array<double, 16> kBounds = {
      0.00005, 0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01,
      0.025,   0.05,   0.1,     0.25,   0.5,   1,      5,     30};
  std::array<std::atomic<uint64_t>, kBounds.size() + 1> buckets_{};
  std::atomic<uint64_t> sum_us_{0};
};

enum class ParkResult { kServed, kBudget, kClientGone, kError };
// Of a drain that a door asked for: nothing was in flight any more, or it ended before that.
enum class DrainResult { kDrained, kCalledOff, kCut, kLost };

class Metrics {
 public:
  struct Gauges {
    size_t parked = 0;
    size_t flights = 0;
    size_t upstream_idle = 0;
    size_t upstream_busy = 0;
    size_t connections = 0;
    size_t routes = 0;
  };

  // `reason` is empty for an actor's answer; `status` 0 = the client got none.
  void Request(int status, std::string_view reason, WakeRole wake, Duration total);
  void Added(Duration d) { added_.Observe(d); }
  void Parked(ParkResult result, Duration d) { park_[static_cast<int>(result)].Observe(d); }
  void Drained(DrainResult result, Duration d) { drain_[static_cast<int>(result)].Observe(d); }
  void ParkRejected(std::string_view cap) EXCLUDES(mu_);
  // `of`: address or atespace.
  void RateLimited(std::string_view of) EXCLUDES(mu_);
  void ResumeRetry(Code code) EXCLUDES(mu_);
  void CutStream(std::string_view reason) EXCLUDES(mu_);
  void BadRequest(Rule rule) EXCLUDES(mu_);
  std::string Render(const Gauges& gauges) const EXCLUDES(mu_);

 private:
  void Count(std::string_view name, const std::string& labels) EXCLUDES(mu_);

  std::array<std::atomic<uint64_t>, 6> answered_{};  // By status class, without a reason.
  std::array<Histogram, 3> request_;                 // By WakeRole.
  std::array<Histogram, 4> park_;                    // By ParkResult.
  std::array<Histogram, 4> drain_;                   // By DrainResult.
  Histogram added_;
  mutable Mutex mu_;
  std::map<std::string, std::map<std::string, uint64_t>> counters_ GUARDED_BY(mu_);
};

}  // namespace torpor::router
