#include "bench/stats.h"

#include <cmath>
#include <numeric>

namespace torpor::bench {
namespace {

constexpr int64_t kSamplesMin = 30;
constexpr double kSamplesBeyond = 10;

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace

double Percentile(const std::vector<double>& sorted, double percent) {
  if (sorted.empty()) return 0;
  // Without the small term 95 % of 20 would be rank 20 by a rounding error instead of 19.
  double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()) - 1e-9);
  auto index = static_cast<size_t>(std::max(1.0, rank)) - 1;
  return sorted[std::min(index, sorted.size() - 1)];
}

Summary Summarize(std::vector<double> samples) {
  Summary s;
  if (samples.empty()) return s;
  std::sort(samples.begin(), samples.end());
  s.n = static_cast<int64_t>(samples.size());
  s.min = samples.front();
  s.max = samples.back();
  s.mean = std::accumulate(samples.begin(), samples.end(), 0.0) / static_cast<double>(s.n);
  s.p50 = Percentile(samples, 50);
  s.p75 = Percentile(samples, 75);
  s.p90 = Percentile(samples, 90);
  s.p95 = Percentile(samples, 95);
  s.p99 = Percentile(samples, 99);
  return s;
}

Summary MedianOfRepeats(const std::vector<Summary>& repeats) {
  Summary out;
  std::vector<Summary> filled;
  for (const Summary& repeat : repeats) {
    if (repeat.n > 0) filled.push_back(repeat);
  }
  if (filled.empty()) return out;
  auto median = [&](double Summary::* field) {
    std::vector<double> values;
    for (const Summary& repeat : filled) values.push_back(repeat.*field);
    return Median(std::move(values));
  };
  out.min = filled[0].min;
  for (const Summary& repeat : filled) {
    out.n += repeat.n;
    out.min = std::min(out.min, repeat.min);
    out.max = std::max(out.max, repeat.max);
  }
  out.p50 = median(&Summary::p50);
  out.mean = median(&Summary::mean);
  out.p75 = median(&Summary::p75);
  out.p90 = median(&Summary::p90);
  out.p95 = median(&Summary::p95);
  out.p99 = median(&Summary::p99);
  return out;
}

int64_t SamplesNeeded(double percent) {
  double beyond = std::min(percent, 100 - percent) / 100;
  if (beyond <= 0) return kSamplesMin;
  return std::max(kSamplesMin, static_cast<int64_t>(std::ceil(kSamplesBeyond / beyond - 1e-9)));
}

double LocustRounded(double ms) {
  double unit = ms < 100 ? 1 : ms < 1000 ? 10 : ms < 10000 ? 100 : 1000;
  return std::round(ms / unit) * unit;
}

std::string FormatMs(double ms) {
  if (ms < 9.995) return fmt::format("{:.2f}", ms);
  if (ms < 99.95) return fmt::format("{:.1f}", ms);
  std::string digits = fmt::format("{:.0f}", ms);
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string FormatPercentile(double ms, double percent, int64_t n) {
  if (n == 0) return "-";
  return FormatMs(ms) + (n < SamplesNeeded(percent) ? "~" : "");
}

Histogram MakeHistogram(const std::vector<double>& samples) {
  std::map<int64_t, int64_t> counts;
  for (double ms : samples) {
    auto us = static_cast<int64_t>(std::llround(ms * 1000));
    int64_t unit = 1;
    while (us / unit >= 1000) unit *= 10;
    counts[(us + unit / 2) / unit * unit]++;
  }
  return {counts.begin(), counts.end()};
}

}  // namespace torpor::bench
