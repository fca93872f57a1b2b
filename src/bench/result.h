#pragma once
// What a run leaves behind: one JSON object, schema 1. Plain values.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/stats.h"

namespace torpor::bench {

inline constexpr int kSchema = 1;

// A part of an operation, from the operation's own record.
struct PhaseRow {
  std::string name;       // restore
  std::string component;  // worker
  double start_ms = 0;    // median, from the operation's start
  Summary ms;
};

// One kind of operation. Latencies are of successful ones; failures have their own.
struct Row {
  std::string name;
  int64_t attempts = 0;
  int64_t failures = 0;
  double per_second = 0;  // successful ones, in the measured window
  Summary ms;             // driver's wall time
  Summary failed_ms;
  Summary server_ms;   // as the server says; n = 0 when it does not
  double p50_min = 0;  // over the repeats
  double p50_max = 0;
  std::vector<PhaseRow> phases;
  Histogram histogram;
};

// One number of a run that is no operation's time, and what it has to be.
struct Figure {
  std::string name;
  std::string unit;
  double value = 0;
  std::string relation;  // "<=", ">=", or empty: nothing is demanded
  double bound = 0;
  bool met() const {
    return relation.empty() || (relation == "<=" ? value <= bound : value >= bound);
  }
};

// A physical limit, measured without Torpor in the same run.
struct Limit {
  std::string name;  // L1
  std::string what;
  Summary ms;
  double drift = 0;  // of the median, last half against first; 0.05 = 5 % slower
  std::vector<double> samples;
  int64_t bytes = 0;    // that one sample moved; 0 = it is no transfer
  std::string command;  // that it stands for
};

// Metric against limit: met when measured <= factor * limit + add_ms, or >= when `at_least`.
struct Ratio {
  std::string metric;
  std::string limit;
  double measured_ms = 0;
  double limit_ms = 0;
  double factor = 0;
  double add_ms = 0;
  bool comparable = false;  // enough samples on both sides, and the limit did not drift
  bool at_least = false;
  double bound_ms() const { return factor * limit_ms + add_ms; }
  bool met() const { return at_least ? measured_ms >= bound_ms() : measured_ms <= bound_ms(); }
};

struct MachineLoad {
  double load1 = 0;
  double mhz = 0;  // of the first core; 0 = unknown
};

struct Machine {
  std::string kernel;
  std::string cpu;
  int64_t cores = 0;
  int64_t memory_bytes = 0;
  std::string file_system;  // of the data directory
  std::string cgroup;       // v1 | v2 | hybrid
};

struct Build {
  std::string version;
  std::string revision;  // of git; "unknown"
  std::string binary_sha256;
  std::string flags;
  bool release = false;
};

struct Repeat {
  double seconds = 0;  // of the measured window
  int64_t completed_cycles = 0;
  double cycles_mean = 0;  // (hibernations + resumes) / 2, for one published table only
  int64_t replaced = 0;
  int64_t crashed = 0;
  int64_t corruptions = 0;
  int64_t unexplained = 0;
  int64_t warmup_failures = 0;
  double driver_cpu = 0;     // cores
  double driver_late = 0;    // share of requests at a rate that the driver sent too late
  double steal_percent = 0;  // of the cpu time in the window
  double other_cpu = 0;      // cores used by what is neither Torpor nor the driver
  MachineLoad before, after;
  std::vector<Row> rows;
  std::vector<Figure> figures;
  std::vector<std::string> events;
};

struct RunResult {
  int schema = kSchema;
  std::string scenario;
  std::string started;  // RFC 3339
  std::map<std::string, std::string> parameters;
  std::map<std::string, std::string> overrides;
  Build build;
  Machine machine;
  std::string runtime;  // "runsc release-20240729.0 (systrap)"
  std::string page_cache;
  // Over all repeats: medians; counts are sums.
  std::vector<Row> rows;
  std::vector<Figure> figures;
  std::vector<Repeat> repeats;
  std::vector<Limit> limits;
  std::vector<Ratio> ratios;
  std::string verdict;  // ok | noisy | driver_limited | corrupt
  std::vector<std::string> verdict_reasons;
};

// Null when there is none.
const Row* FindRow(const std::vector<Row>& rows, const std::string& name);
const Limit* FindLimit(const std::vector<Limit>& limits, const std::string& name);

// Sets `rows` and `figures` from those of the repeats. A figure that has to be something is the
// worst of the repeats, any other the median.
void CombineRepeats(RunResult* result);
// Sets `ratios` from rows and limits.
void CompareWithLimits(RunResult* result);
// Sets verdict and reasons from everything else.
void Judge(RunResult* result);

std::string ToJson(const RunResult& result);
// INVALID_ARGUMENT for what is no result of this schema.
StatusOr<RunResult> ParseResult(const std::string& json, const std::string& file);

}  // namespace torpor::bench
