#pragma once
// Requests at a given rate, each measured from the moment it was due: a server that stalls is not
// asked less, and the wait counts.

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "bench/outcome.h"
#include "bench/stats.h"

namespace torpor::bench {

struct LoadPlan {
  double rate = 0;  // per second; 0 = closed loop: as fast as answers come
  Duration duration{};
  int64_t connections = 1;
};

struct LoadResult {
  int64_t due = 0, sent = 0, failed = 0;
  // Sent more than 10 ms after they were due although the connection was free: the driver's fault.
  int64_t late = 0;
  double seconds = 0;
  std::vector<double> ms;  // of the successful ones, from the moment they were due
  std::string first_failure;
  int64_t unexplained = 0;
};

// `send` is called on a thread per connection with its number and makes one request.
using SendOne = std::function<Outcome(int64_t connection, int64_t number)>;
LoadResult RunLoad(const LoadPlan& plan, const SendOne& send, const std::function<bool()>& stopped);

struct Objective {
  double p95_ms = 25;
  double success = 0.999;
  double sent = 0.9;  // of those that were due
};
bool Meets(const LoadResult& result, const Objective& objective);

// The highest rate that `try_rate` accepts, to within 5 %: doubles from `first` until it refuses,
// then halves the gap. 0 when it refuses `first`.
double SearchRate(double first, const std::function<bool(double rate)>& try_rate);

}  // namespace torpor::bench
