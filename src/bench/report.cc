#include "bench/report.h"

#include <fmt/ranges.h>

#include "base/quantity.h"

namespace torpor::bench {
namespace {

// The first column is aligned to the left, the others to the right.
class TextTable {
 public:
  void Add(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }
  std::string ToString() const {
    std::vector<size_t> widths;
    for (const auto& row : rows_) {
      widths.resize(std::max(widths.size(), row.size()));
      for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
    }
    std::string out;
    for (const auto& row : rows_) {
      std::string line = fmt::format("{:<{}}", row[0], widths[0]);
      for (size_t i = 1; i < row.size(); ++i) {
        // A mark stands behind the number, so that digits stay below digits.
        const bool marked = !row[i].empty() && row[i].back() == '~';
        line += fmt::format("  {:>{}}{}", marked ? row[i] : row[i] + " ", widths[i] + 1, "");
      }
      line.erase(line.find_last_not_of(' ') + 1);
      out += line + "\n";
    }
    return out;
  }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string Percent(int64_t part, int64_t whole) {
  if (whole == 0) return "-";
  return fmt::format("{:.3g} %", 100.0 * static_cast<double>(part) / static_cast<double>(whole));
}

class Formatter {
 public:
  explicit Formatter(bool locust) : locust_(locust) {}
  std::string Value(double ms, int64_t n) const {
    return n == 0 ? "-" : FormatMs(locust_ ? LocustRounded(ms) : ms);
  }
  std::string Percentile(double ms, double percent, int64_t n) const {
    return FormatPercentile(locust_ ? LocustRounded(ms) : ms, percent, n);
  }

 private:
  const bool locust_;
};

struct Totals {
  int64_t attempts = 0, failures = 0, cycles = 0, replaced = 0, crashed = 0, corruptions = 0,
          unexplained = 0, warmup_failures = 0;
  double seconds = 0, cycles_mean = 0;
};

Totals Sum(const RunResult& result) {
  Totals t;
  for (const Row& row : result.rows) {
    t.attempts += row.attempts;
    t.failures += row.failures;
  }
  for (const Repeat& repeat : result.repeats) {
    t.cycles += repeat.completed_cycles;
    t.replaced += repeat.replaced;
    t.crashed += repeat.crashed;
    t.corruptions += repeat.corruptions;
    t.unexplained += repeat.unexplained;
    t.warmup_failures += repeat.warmup_failures;
    t.seconds += repeat.seconds;
    t.cycles_mean += repeat.cycles_mean;
  }
  return t;
}

double MedianCycles(const RunResult& result) {
  std::vector<double> values;
  for (const Repeat& repeat : result.repeats) {
    values.push_back(static_cast<double>(repeat.completed_cycles));
  }
  return Summarize(values).p50;
}

std::string Head(const RunResult& r) {
  std::string out = fmt::format("{}  {}  verdict: {}\n", r.scenario.empty() ? "limits" : r.scenario,
                                r.started, r.verdict);
  for (const std::string& reason : r.verdict_reasons) out += "  " + reason + "\n";
  out += fmt::format("torpor {} ({}, {}), {}\n", r.build.version, r.build.revision, r.build.flags,
                     r.runtime);
  out += fmt::format("{}, {} cores, {}, kernel {}, {}, cgroup {}\n", r.machine.cpu, r.machine.cores,
                     FormatBytes(r.machine.memory_bytes), r.machine.kernel, r.machine.file_system,
                     r.machine.cgroup);
  if (!r.repeats.empty()) {
    std::vector<std::string> loads;
    for (const Repeat& repeat : r.repeats) {
      loads.push_back(fmt::format("{:.2f}-{:.2f} / {:.1f} % / {:.2f}", repeat.before.load1,
                                  repeat.after.load1, repeat.steal_percent, repeat.other_cpu));
    }
    out += fmt::format("load before-after / steal / cores used by others, per repeat: {}\n",
                       fmt::join(loads, ", "));
  }
  if (!r.page_cache.empty()) out += "page cache: " + r.page_cache + "\n";
  if (!r.overrides.empty()) {
    std::vector<std::string> words;
    for (const auto& [knob, value] : r.overrides) words.push_back(knob + "=" + value);
    out += fmt::format("overrides: {}\n", fmt::join(words, " "));
  }
  return out;
}

// "; 2,010 MB/s" for a transfer.
std::string Speed(const Limit& limit) {
  if (limit.bytes == 0 || limit.ms.p50 <= 0) return "";
  return fmt::format("; {} MB/s", FormatMs(static_cast<double>(limit.bytes) / limit.ms.p50 / 1000));
}

std::string Figures(const RunResult& r) {
  if (r.figures.empty()) return "";
  TextTable table;
  table.Add({"figure", "value", "to reach"});
  for (const Figure& f : r.figures) {
    table.Add({f.name, fmt::format("{:.4g} {}", f.value, f.unit),
               f.relation.empty() ? ""
                                  : fmt::format("{} {:g}: {}", f.relation, f.bound,
                                                f.met() ? "reached" : "missed")});
  }
  return "\n" + table.ToString();
}

std::string Limits(const RunResult& r) {
  TextTable table;
  table.Add({"limit (ms)", "N", "min", "p50", "mean", "p95", "p99", "max", "drift"});
  for (const Limit& limit : r.limits) {
    const Summary& s = limit.ms;
    table.Add({limit.name + " " + limit.what + Speed(limit), fmt::to_string(s.n), FormatMs(s.min),
               FormatPercentile(s.p50, 50, s.n), FormatMs(s.mean), FormatPercentile(s.p95, 95, s.n),
               FormatPercentile(s.p99, 99, s.n), FormatMs(s.max),
               fmt::format("{:+.1f} %", limit.drift * 100)});
  }
  std::string out = r.limits.empty() ? "\n" : "\n" + table.ToString();
  for (const Ratio& ratio : r.ratios) {
    out += fmt::format(
        "{}: {} ms = {:.2f} x {} ({} ms); to reach {} {:g} x {} + {:g} ms = {} ms: {}{}\n",
        ratio.metric, FormatMs(ratio.measured_ms), ratio.measured_ms / ratio.limit_ms, ratio.limit,
        FormatMs(ratio.limit_ms), ratio.at_least ? ">=" : "<=", ratio.factor, ratio.limit,
        ratio.add_ms, FormatMs(ratio.bound_ms()), ratio.met() ? "reached" : "missed",
        ratio.comparable ? "" : " (for orientation only)");
  }
  return out;
}

std::string Failures(const RunResult& r) {
  const Totals t = Sum(r);
  std::string out = fmt::format(
      "operations {}, failures {} ({}), unexplained {}, corruptions {}, crashed {}, replaced {}, "
      "failures in warm-up {}\n",
      t.attempts, t.failures, Percent(t.failures, t.attempts), t.unexplained, t.corruptions,
      t.crashed, t.replaced, t.warmup_failures);
  constexpr size_t kEventsShown = 10;
  size_t shown = 0;
  for (const Repeat& repeat : r.repeats) {
    for (const std::string& event : repeat.events) {
      if (++shown <= kEventsShown) out += "  " + event + "\n";
    }
  }
  if (shown > kEventsShown) out += fmt::format("  ... {} more events\n", shown - kEventsShown);
  return out;
}

std::string Full(const RunResult& r, const Formatter& f) {
  TextTable table;
  table.Add({"row (ms)", "N", "failed", "rate", "min", "p50", "avg", "p75", "p90", "p95", "p99",
             "max", "req/s", "server p50", "p50 of repeats"});
  for (const Row& row : r.rows) {
    const Summary& s = row.ms;
    const Summary& server = row.server_ms;
    table.Add({row.name, fmt::to_string(row.attempts), fmt::to_string(row.failures),
               Percent(row.failures, row.attempts), f.Value(s.min, s.n),
               f.Percentile(s.p50, 50, s.n), f.Value(s.mean, s.n), f.Percentile(s.p75, 75, s.n),
               f.Percentile(s.p90, 90, s.n), f.Percentile(s.p95, 95, s.n),
               f.Percentile(s.p99, 99, s.n), f.Value(s.max, s.n),
               fmt::format("{:.2f}", row.per_second), f.Percentile(server.p50, 50, server.n),
               s.n == 0 ? "-" : FormatMs(row.p50_min) + ".." + FormatMs(row.p50_max)});
    const Summary& failed = row.failed_ms;
    if (failed.n == 0) continue;
    table.Add({"  failed", fmt::to_string(failed.n), "", "", f.Value(failed.min, failed.n),
               f.Percentile(failed.p50, 50, failed.n), f.Value(failed.mean, failed.n), "", "", "",
               "", f.Value(failed.max, failed.n)});
  }
  std::string out = "\n" + table.ToString();
  for (const Row& row : r.rows) {
    if (row.phases.empty()) continue;
    TextTable phases;
    phases.Add({row.name + ": phase (ms)", "begins", "N", "p50", "avg", "max"});
    for (const PhaseRow& phase : row.phases) {
      phases.Add({"  " + phase.component + " " + phase.name, FormatMs(phase.start_ms),
                  fmt::to_string(phase.ms.n), FormatPercentile(phase.ms.p50, 50, phase.ms.n),
                  FormatMs(phase.ms.mean), FormatMs(phase.ms.max)});
    }
    out += "\n" + phases.ToString();
  }
  return out;
}

// "35 %" when `b` is lower than `a` by that.
std::string Improvement(double a, double b) {
  return a > 0 ? fmt::format("{:.3g} %", 100 * (1 - b / a)) : "-";
}

// `b` null: one column.
std::string MemoryLayout(const RunResult& a, const RunResult* b, const Formatter& f) {
  TextTable table;
  auto add = [&](const std::string& name, const std::string& of_a, const std::string& of_b,
                 const std::string& better) {
    if (b == nullptr) {
      table.Add({name, of_a});
    } else {
      table.Add({name, of_a, of_b, better});
    }
  };
  add("metric", "A", "B", "improvement");
  const double seconds = a.repeats.empty() ? 0 : a.repeats[0].seconds;
  const double cycles = MedianCycles(a), cycles_b = b == nullptr ? 0 : MedianCycles(*b);
  add(fmt::format("Completed Cycles (in {:g}s)", seconds), fmt::format("{:g}", cycles),
      fmt::format("{:g}", cycles_b),
      cycles > 0 ? fmt::format("{:.3g} %", 100 * (cycles_b / cycles - 1)) : "-");
  auto times = [&](const Summary& s) {
    return fmt::format("{} / {} / {}", f.Percentile(s.p50, 50, s.n), f.Value(s.mean, s.n),
                       f.Percentile(s.p95, 95, s.n));
  };
  for (const char* name : {"PauseActor", "SuspendActor", "ResumeActor"}) {
    const Row* row = FindRow(a.rows, name);
    if (row == nullptr) continue;
    const Row* found = b == nullptr ? nullptr : FindRow(b->rows, name);
    const Row other = found == nullptr ? Row() : *found;
    const std::string counts = b == nullptr ? fmt::format("N={}", row->ms.n)
                                            : fmt::format("N={}, {}", row->ms.n, other.ms.n);
    add(fmt::format("{} Failure Rate", name), Percent(row->failures, row->attempts),
        Percent(other.failures, other.attempts), "");
    add(fmt::format("{} P50 / Avg / P95 ({})", name, counts), times(row->ms), times(other.ms),
        Improvement(row->ms.p50, other.ms.p50));
  }
  return "\n" + table.ToString();
}

std::string OperationLayout(const RunResult& r, const Formatter& f) {
  TextTable table;
  table.Add({"operation", "N", "failed", "p50", "p75", "p90", "p95", "p99", "Average",
             "Throughput (req/s)"});
  for (const Row& row : r.rows) {
    const Summary& s = row.ms;
    table.Add({row.name, fmt::to_string(row.attempts), fmt::to_string(row.failures),
               f.Percentile(s.p50, 50, s.n), f.Percentile(s.p75, 75, s.n),
               f.Percentile(s.p90, 90, s.n), f.Percentile(s.p95, 95, s.n),
               f.Percentile(s.p99, 99, s.n), f.Value(s.mean, s.n),
               fmt::format("{:.2f}", row.per_second)});
  }
  return "\n" + table.ToString();
}

std::string ThroughputLayout(const RunResult& r, const Formatter& f) {
  const Totals t = Sum(r);
  TextTable table;
  table.Add({"metric", "A"});
  table.Add({"Completed Cycles", fmt::to_string(t.cycles)});
  table.Add({"cycles_mean ((hibernations + resumes) / 2)", fmt::format("{:g}", t.cycles_mean)});
  if (t.seconds > 0) {
    double rate = static_cast<double>(t.cycles) / t.seconds;
    table.Add(
        {"Cycle Throughput", fmt::format("{:.1f} cycles/min, {:.2f} cycles/s", rate * 60, rate)});
  }
  if (const Row* row = FindRow(r.rows, "ResumeActor")) {
    const Summary& s = row->ms;
    table.Add({fmt::format("ResumeActor p50 (N={})", s.n), f.Percentile(s.p50, 50, s.n)});
    table.Add({"ResumeActor avg", f.Value(s.mean, s.n)});
    table.Add({"ResumeActor p90 / p99",
               fmt::format("{} / {}", f.Percentile(s.p90, 90, s.n), f.Percentile(s.p99, 99, s.n))});
  }
  return "\n" + table.ToString();
}

}  // namespace

std::string Report(const RunResult& result, const ReportOptions& options) {
  Formatter f(options.locust_rounding);
  std::string out = Head(result) + Failures(result);
  if (options.layout == "memory") {
    out += MemoryLayout(result, nullptr, f);
  } else if (options.layout == "operation") {
    out += OperationLayout(result, f);
  } else if (options.layout == "throughput") {
    out += ThroughputLayout(result, f);
  } else {
    out += fmt::format("completed cycles {:g} per repeat\n", MedianCycles(result));
    out += Full(result, f);
  }
  out += Figures(result);
  out += Limits(result);
  out += "\n~ too few samples for this percentile; not to be compared\n";
  return out;
}

std::string ReportMemoryOfBoth(const RunResult& a, const RunResult& b) {
  return "A: " + Head(a) + Failures(a) + "B: " + Head(b) + Failures(b) +
         MemoryLayout(a, &b, Formatter(false)) +
         "\n~ too few samples for this percentile; not to be compared\n";
}

std::string ReportLimits(const RunResult& result) {
  return Head(result) + Figures(result) + Limits(result) +
         "\n~ too few samples for this percentile; not to be compared\n";
}

}  // namespace torpor::bench
