#pragma once
// Percentiles of measured times, and when they may be trusted. Pure functions; times are
// milliseconds.

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace torpor::bench {

// The smallest sample that at least `percent` of all samples do not exceed (nearest rank); 0 when
// there is none. `sorted` is ascending.
double Percentile(const std::vector<double>& sorted, double percent);

// What is kept of one series.
struct Summary {
  int64_t n = 0;
  double min = 0, p50 = 0, mean = 0, p75 = 0, p90 = 0, p95 = 0, p99 = 0, max = 0;
};
Summary Summarize(std::vector<double> samples);

// Each value is the median of the same value of the repeats that have samples; n is their sum.
// min and max are the least and greatest of all, as no repeat is ever dropped.
Summary MedianOfRepeats(const std::vector<Summary>& repeats);

// The fewest samples for which a percentile is a result; below, it is marked and never compared.
// Ten samples have to lie beyond it, and 30 in all.
int64_t SamplesNeeded(double percent);

// As the public load generator does before it takes percentiles: below 100 ms to 1, below 1 s to
// 10, below 10 s to 100, above to 1000.
double LocustRounded(double ms);

// "323", "0.41", "1,697": three significant digits at least, whole milliseconds from 100 on.
std::string FormatMs(double ms);
// FormatMs with a `~` behind it when there are too few samples.
std::string FormatPercentile(double ms, double percent, int64_t n);

// (microseconds rounded to three digits, count), ascending.
using Histogram = std::vector<std::pair<int64_t, int64_t>>;
Histogram MakeHistogram(const std::vector<double>& samples);

}  // namespace torpor::bench
