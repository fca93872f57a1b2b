#include "bench/ab.h"

#include <random>
#include <sstream>

#include "bench/report.h"

namespace torpor::bench {
namespace {

constexpr int kResamples = 10000;
constexpr double kDriftMax = 0.10;
const char* const kRows[] = {"PauseActor",     "SuspendActor", "ResumeActor",      "WakeFirstTouch",
                             "GluttonReadRAM", "GluttonPing",  "ActorTimeToReady", "Count"};

Status Bad(const std::string& message) {
  return Error(Code::kInvalidArgument, "FIELD_INVALID", message);
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

void AddMetric(const std::string& name, const std::vector<double>& a, const std::vector<double>& b,
               uint64_t seed, AbResult* result) {
  std::vector<double> ratios, of_a, of_b;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    if (a[i] <= 0 || b[i] <= 0) continue;
    ratios.push_back(b[i] / a[i]);
    of_a.push_back(a[i]);
    of_b.push_back(b[i]);
  }
  if (ratios.empty()) return;
  result->metrics.push_back({name, Bootstrap(ratios, seed), Median(of_a), Median(of_b),
                             static_cast<int64_t>(ratios.size())});
}

void CheckFailures(const RunResult& run, const std::string& side, AbResult* result) {
  for (const Row& row : run.rows) {
    if (row.failures == 0) continue;
    result->void_reasons.push_back(
        fmt::format("{}: {} of {} {} failed", side, row.failures, row.attempts, row.name));
  }
  for (const Repeat& repeat : run.repeats) {
    if (repeat.corruptions > 0)
      result->void_reasons.push_back(side + ": an actor's state was lost");
  }
}

}  // namespace

StatusOr<StackOptions> ParseSpec(const std::string& spec) {
  StackOptions options;
  std::istringstream in(spec);
  for (std::string part; std::getline(in, part, ',');) {
    const std::string value = part.size() > 4 ? part.substr(4) : "";
    const std::string key = part.substr(0, 4);
    if (value.empty()) return Bad("'" + part + "' is not bin=PATH, opt=--FLAG=VALUE or env=K=V");
    if (key == "bin=") {
      if (!options.binary.empty()) return Bad("bin is given twice");
      options.binary = value;
    } else if (key == "opt=" && value.compare(0, 2, "--") == 0) {
      options.flags.push_back(value);
    } else if (key == "env=" && value.find('=') != std::string::npos && value[0] != '=') {
      options.env.push_back(value);
    } else {
      return Bad("'" + part + "' is not bin=PATH, opt=--FLAG=VALUE or env=K=V");
    }
  }
  return options;
}

std::vector<bool> BFirst(uint64_t seed, int64_t blocks) {
  std::mt19937_64 random(seed);
  std::vector<bool> out;
  bool first = false;
  for (int64_t i = 0; i < blocks; ++i) {
    // A pair of blocks is ABBA or BAAB.
    first = i % 2 == 0 ? (random() & 1) != 0 : !first;
    out.push_back(first);
  }
  return out;
}

Interval Bootstrap(const std::vector<double>& values, uint64_t seed) {
  if (values.empty()) return {};
  std::mt19937_64 random(seed);
  std::vector<double> medians;
  medians.reserve(kResamples);
  std::vector<double> sample(values.size());
  for (int i = 0; i < kResamples; ++i) {
    for (double& value : sample) value = values[random() % values.size()];
    medians.push_back(Median(sample));
  }
  std::sort(medians.begin(), medians.end());
  return {Median(values), Percentile(medians, 2.5), Percentile(medians, 97.5)};
}

AbResult CompareAb(RunResult a, RunResult b, uint64_t seed, double max_regression) {
  AbResult result;
  CombineRepeats(&a);
  CombineRepeats(&b);
  for (RunResult* run : {&a, &b}) {
    CompareWithLimits(run);
    Judge(run);
  }
  CheckFailures(a, "A", &result);
  CheckFailures(b, "B", &result);
  for (const Limit& limit : a.limits) {
    if (std::abs(limit.drift) <= kDriftMax) continue;
    result.void_reasons.push_back(fmt::format("{} drifted by {:+.0f} % between before and after",
                                              limit.name, limit.drift * 100));
  }
  for (const char* name : kRows) {
    std::vector<double> p50[2], mean[2];
    for (int side = 0; side < 2; ++side) {
      for (const Repeat& repeat : (side == 0 ? a : b).repeats) {
        const Row* row = FindRow(repeat.rows, name);
        p50[side].push_back(row == nullptr ? 0 : row->ms.p50);
        mean[side].push_back(row == nullptr ? 0 : row->ms.mean);
      }
    }
    AddMetric(std::string(name) + " p50", p50[0], p50[1], seed, &result);
    AddMetric(std::string(name) + " mean", mean[0], mean[1], seed, &result);
  }
  if (max_regression > 0 && result.void_reasons.empty()) {
    for (const AbMetric& metric : result.metrics) {
      if (metric.ratio.low > max_regression) result.regressions.push_back(metric.name);
    }
  }
  result.a = std::move(a);
  result.b = std::move(b);
  return result;
}

std::string ReportAb(const AbResult& result) {
  std::string out = ReportMemoryOfBoth(result.a, result.b);
  out += "\nB / A, median of the blocks and its 95 % interval:\n";
  for (const AbMetric& m : result.metrics) {
    out += fmt::format("  {}: {:.3f} [{:.3f}, {:.3f}] of {} blocks ({} -> {} ms): {}\n", m.name,
                       m.ratio.median, m.ratio.low, m.ratio.high, m.n, FormatMs(m.a), FormatMs(m.b),
                       !m.ratio.shows_difference() ? "no difference shown"
                       : m.ratio.median < 1        ? "B is faster"
                                                   : "B is slower");
  }
  for (const std::string& reason : result.void_reasons) out += "void: " + reason + "\n";
  for (const std::string& metric : result.regressions) out += "regression: " + metric + "\n";
  return out;
}

}  // namespace torpor::bench
