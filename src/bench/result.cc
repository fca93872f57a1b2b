#include "bench/result.h"

#include "base/time.h"

namespace torpor::bench {
namespace {

constexpr double kDriftMax = 0.10;
constexpr double kLoadMax = 0.5;
constexpr double kStealMax = 2;        // percent
constexpr double kDriverCpuMax = 0.8;  // cores
constexpr double kDriverLateMax = 0.01;
constexpr double kOtherCpuMax = 0.1;  // cores

Row Combine(const std::string& name, const std::vector<const Row*>& rows) {
  Row out;
  out.name = name;
  std::vector<Summary> ms, failed, server;
  std::map<int64_t, int64_t> histogram;
  std::vector<double> rates;
  for (const Row* row : rows) {
    out.attempts += row->attempts;
    out.failures += row->failures;
    ms.push_back(row->ms);
    failed.push_back(row->failed_ms);
    server.push_back(row->server_ms);
    rates.push_back(row->per_second);
    for (const auto& [us, count] : row->histogram) histogram[us] += count;
    if (row->ms.n == 0) continue;
    out.p50_min = out.p50_max == 0 ? row->ms.p50 : std::min(out.p50_min, row->ms.p50);
    out.p50_max = std::max(out.p50_max, row->ms.p50);
  }
  out.ms = MedianOfRepeats(ms);
  out.failed_ms = MedianOfRepeats(failed);
  out.server_ms = MedianOfRepeats(server);
  out.per_second = Summarize(rates).p50;
  out.histogram = {histogram.begin(), histogram.end()};
  return out;
}

void CombinePhases(const std::vector<const Row*>& rows, Row* out) {
  for (const Row* row : rows) {
    for (const PhaseRow& phase : row->phases) {
      auto same = [&](const PhaseRow& p) {
        return p.name == phase.name && p.component == phase.component;
      };
      if (std::any_of(out->phases.begin(), out->phases.end(), same)) continue;
      PhaseRow combined{phase.name, phase.component, 0, {}};
      std::vector<Summary> ms;
      std::vector<double> starts;
      for (const Row* other : rows) {
        auto found = std::find_if(other->phases.begin(), other->phases.end(), same);
        if (found == other->phases.end()) continue;
        ms.push_back(found->ms);
        starts.push_back(found->start_ms);
      }
      combined.ms = MedianOfRepeats(ms);
      combined.start_ms = Summarize(starts).p50;
      out->phases.push_back(std::move(combined));
    }
  }
  std::stable_sort(out->phases.begin(), out->phases.end(),
                   [](const auto& a, const auto& b) { return a.start_ms < b.start_ms; });
}

Ratio RouterRatio(const Limit& router, const Limit& door, int percent, double Summary::* field,
                  double add_ms) {
  Ratio ratio{fmt::format("router p{}", percent),
              fmt::format("L9 p{}", percent),
              router.ms.*field,
              door.ms.*field,
              1,
              add_ms};
  ratio.comparable = router.ms.n >= SamplesNeeded(percent) && door.ms.n >= SamplesNeeded(percent);
  return ratio;
}

// One percentile of a row against the same of a limit, or of another row.
struct Demand {
  const char* row;
  const char* against;
  int percent;
  double factor;
  double add_ms;
};

double At(const Summary& summary, int percent) { return percent == 95 ? summary.p95 : summary.p50; }

void Compare(RunResult* result, const Demand& demand) {
  const Row* row = FindRow(result->rows, demand.row);
  const Limit* limit = FindLimit(result->limits, demand.against);
  const Row* other = FindRow(result->rows, demand.against);
  if (row == nullptr || row->ms.n == 0 || (limit == nullptr && other == nullptr)) return;
  const Summary& base = limit != nullptr ? limit->ms : other->ms;
  if (base.n == 0) return;
  // A row's own median is what its 95th percentile is held against.
  const int of_base = row == other ? 50 : demand.percent;
  Ratio ratio{fmt::format("{} p{}", demand.row, demand.percent),
              of_base == 50 && row != other ? demand.against
                                            : fmt::format("{} p{}", demand.against, of_base),
              At(row->ms, demand.percent),
              At(base, of_base),
              demand.factor,
              demand.add_ms};
  ratio.comparable = row->ms.n >= SamplesNeeded(demand.percent) &&
                     base.n >= SamplesNeeded(of_base) &&
                     (limit == nullptr || std::abs(limit->drift) <= kDriftMax);
  result->ratios.push_back(std::move(ratio));
}

std::string Parameter(const RunResult& result, const std::string& name) {
  auto found = result.parameters.find(name);
  return found == result.parameters.end() ? "" : found->second;
}

// The cycles that would fit between the limits and the scenario's own waits and work.
void CompareCycles(RunResult* result) {
  constexpr double kShare = 0.9;
  const Limit* checkpoint = FindLimit(result->limits, "L1");
  const Limit* restore = FindLimit(result->limits, "L2");
  const Row* resume = FindRow(result->rows, "ResumeActor");
  auto pause = ParseDuration(Parameter(*result, "min-wait-time"));
  if (checkpoint == nullptr || restore == nullptr || resume == nullptr || resume->ms.n == 0 ||
      !pause.ok() || result->repeats.empty() || Parameter(*result, "users") != "1") {
    return;
  }
  double cycle = checkpoint->ms.p50 + restore->ms.p50 + ToMs(*pause);
  for (const Row& row : result->rows) {
    const bool work = row.name.compare(0, 7, "Glutton") == 0 && row.name != "GluttonFillRAM";
    if (work)
      cycle += row.ms.mean * static_cast<double>(row.ms.n) / static_cast<double>(resume->ms.n);
  }
  std::vector<double> cycles;
  for (const Repeat& repeat : result->repeats) {
    cycles.push_back(static_cast<double>(repeat.completed_cycles));
  }
  const double window = result->repeats[0].seconds * 1000;
  result->figures.push_back({"completed cycles against window / (L1 + L2 + wait + work)", "x",
                             Summarize(cycles).p50 / (window / cycle), ">=", kShare});
}

void CombineFigures(RunResult* result) {
  result->figures.clear();
  std::vector<std::string> names;
  for (const Repeat& repeat : result->repeats) {
    for (const Figure& figure : repeat.figures) {
      if (std::find(names.begin(), names.end(), figure.name) != names.end()) continue;
      names.push_back(figure.name);
      Figure combined = figure;
      std::vector<double> values;
      for (const Repeat& other : result->repeats) {
        for (const Figure& f : other.figures) {
          if (f.name == figure.name) values.push_back(f.value);
        }
      }
      std::sort(values.begin(), values.end());
      combined.value = figure.relation == "<="   ? values.back()
                       : figure.relation == ">=" ? values.front()
                                                 : Summarize(values).p50;
      result->figures.push_back(std::move(combined));
    }
  }
}

}  // namespace

const Row* FindRow(const std::vector<Row>& rows, const std::string& name) {
  auto it = std::find_if(rows.begin(), rows.end(), [&](const Row& r) { return r.name == name; });
  return it == rows.end() ? nullptr : &*it;
}

const Limit* FindLimit(const std::vector<Limit>& limits, const std::string& name) {
  auto it =
      std::find_if(limits.begin(), limits.end(), [&](const Limit& l) { return l.name == name; });
  return it == limits.end() ? nullptr : &*it;
}

void CombineRepeats(RunResult* result) {
  result->rows.clear();
  std::vector<std::string> names;
  for (const Repeat& repeat : result->repeats) {
    for (const Row& row : repeat.rows) {
      if (std::find(names.begin(), names.end(), row.name) == names.end()) names.push_back(row.name);
    }
  }
  for (const std::string& name : names) {
    std::vector<const Row*> rows;
    for (const Repeat& repeat : result->repeats) {
      if (const Row* row = FindRow(repeat.rows, name)) rows.push_back(row);
    }
    Row combined = Combine(name, rows);
    CombinePhases(rows, &combined);
    result->rows.push_back(std::move(combined));
  }
  CombineFigures(result);
}

void CompareWithLimits(RunResult* result) {
  result->ratios.clear();
  Compare(result, {"PauseActor", "L1", 50, 1.10, 15});
  // After a suspend the snapshot comes back from object storage, which L2 does not do.
  if (Parameter(*result, "lifecycle-mode") == "pause") {
    Compare(result, {"ResumeActor", "L2", 50, 1.15, 10});
    if (Parameter(*result, "warm-pool") == "0") {
      Compare(result, {"WakeFirstTouch", "L2", 95, 1, 20});
    } else {
      Compare(result, {"WakeFirstTouch", "L2", 50, 0.5, 0});
      Compare(result, {"WakeFirstTouch", "L2", 95, 0.55, 0});
    }
    Compare(result, {"PauseActor", "PauseActor", 95, 1.5, 0});
    Compare(result, {"ResumeActor", "ResumeActor", 95, 1.5, 0});
  }
  // Those of a storm wait for each other by intent.
  if (Parameter(*result, "pattern") != "storm") {
    Compare(result, {"ResumeActor", "solo ResumeActor", 50, 1.3, 0});
  }
  CompareCycles(result);
  const Limit* door = FindLimit(result->limits, "L9");
  const Limit* router = FindLimit(result->limits, "router");
  if (door == nullptr || router == nullptr || door->ms.n == 0 || router->ms.n == 0) return;
  result->ratios.push_back(RouterRatio(*router, *door, 50, &Summary::p50, 0.3));
  result->ratios.push_back(RouterRatio(*router, *door, 99, &Summary::p99, 2));
}

void Judge(RunResult* result) {
  auto& reasons = result->verdict_reasons;
  reasons.clear();
  bool corrupt = false, driver_limited = false;
  if (!result->repeats.empty() && result->repeats[0].before.load1 > kLoadMax) {
    reasons.push_back(fmt::format("load {:.2f} before the start is above {}",
                                  result->repeats[0].before.load1, kLoadMax));
  }
  for (size_t i = 0; i < result->repeats.size(); ++i) {
    const Repeat& repeat = result->repeats[i];
    auto note = [&](const std::string& what) {
      reasons.push_back(fmt::format("repeat {}: {}", i + 1, what));
    };
    if (repeat.corruptions > 0) {
      corrupt = true;
      note(fmt::format("{} corruptions", repeat.corruptions));
    }
    if (repeat.driver_cpu > kDriverCpuMax) {
      driver_limited = true;
      note(fmt::format("the driver used {:.2f} cores", repeat.driver_cpu));
    }
    if (repeat.driver_late > kDriverLateMax) {
      driver_limited = true;
      note(fmt::format("the driver sent {:.1f} % of the requests too late",
                       repeat.driver_late * 100));
    }
    if (repeat.steal_percent > kStealMax) {
      note(fmt::format("steal {:.1f} % is above {} %", repeat.steal_percent, kStealMax));
    }
    if (repeat.other_cpu > kOtherCpuMax) {
      note(fmt::format("other programs used {:.2f} cores", repeat.other_cpu));
    }
  }
  for (const Limit& limit : result->limits) {
    if (std::abs(limit.drift) <= kDriftMax) continue;
    reasons.push_back(fmt::format("{} drifted by {:+.0f} %", limit.name, limit.drift * 100));
  }
  if (!result->build.release) reasons.push_back("not a release build");
  result->verdict = corrupt           ? "corrupt"
                    : driver_limited  ? "driver_limited"
                    : reasons.empty() ? "ok"
                                      : "noisy";
}

}  // namespace torpor::bench
