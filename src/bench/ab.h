#pragma once
// Two variants of Torpor on one machine: which is faster, and is that more than chance? Pure
// functions; runner.h does the runs.

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/result.h"
#include "bench/stack.h"

namespace torpor::bench {

// "bin=/path,opt=--flag=value,env=NAME=value", each any number of times (bin once); empty = this
// program as it is. INVALID_ARGUMENT.
StatusOr<StackOptions> ParseSpec(const std::string& spec);

// True where B goes first. A block is one repeat of each; the order within a block follows ABBA
// from a side that `seed` draws, so that a machine which slows down hurts both alike.
std::vector<bool> BFirst(uint64_t seed, int64_t blocks);

struct Interval {
  double median = 0, low = 0, high = 0;
  bool shows_difference() const { return low > 1 || high < 1; }
};
// Of the median of `values`, by 10,000 resamples drawn from `seed`: 95 %.
Interval Bootstrap(const std::vector<double>& values, uint64_t seed);

struct AbMetric {
  std::string name;     // "ResumeActor p50"
  Interval ratio;       // B / A; below 1 = B is faster
  double a = 0, b = 0;  // medians of the blocks, ms
  int64_t n = 0;        // blocks
};

struct AbResult {
  std::vector<AbMetric> metrics;
  std::vector<std::string> void_reasons;  // not empty: nothing was compared
  // The metrics whose whole interval is above the limit of --max-regression.
  std::vector<std::string> regressions;
  RunResult a, b;  // with all repeats
};

inline constexpr int64_t kAbBlocksMin = 8;

// From the repeats of `a` and `b`, in pairs, and the limits measured before and after.
// `max_regression` 0 = no gate.
AbResult CompareAb(RunResult a, RunResult b, uint64_t seed, double max_regression);
// The memory layout with columns for A, B and the improvement, then the metrics.
std::string ReportAb(const AbResult& result);

}  // namespace torpor::bench
