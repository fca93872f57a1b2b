#include <nlohmann/json.hpp>

#include "bench/result.h"

namespace torpor::bench {

using Json = nlohmann::json;

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Summary, n, min, p50, mean, p75, p90, p95, p99, max)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(PhaseRow, name, component, start_ms, ms)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Row, name, attempts, failures, per_second, ms,
                                                failed_ms, server_ms, p50_min, p50_max, phases,
                                                histogram)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Figure, name, unit, value, relation, bound)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Limit, name, what, ms, drift, samples, bytes,
                                                command)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Ratio, metric, limit, measured_ms, limit_ms, factor,
                                                add_ms, comparable, at_least)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(MachineLoad, load1, mhz)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Machine, kernel, cpu, cores, memory_bytes,
                                                file_system, cgroup)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Build, version, revision, binary_sha256, flags,
                                                release)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(Repeat, seconds, completed_cycles, cycles_mean,
                                                replaced, crashed, corruptions, unexplained,
                                                warmup_failures, driver_cpu, driver_late,
                                                steal_percent, other_cpu, before, after, rows,
                                                figures, events)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(RunResult, schema, scenario, started, parameters,
                                                overrides, build, machine, runtime, page_cache,
                                                rows, figures, repeats, limits, ratios, verdict,
                                                verdict_reasons)

std::string ToJson(const RunResult& result) {
  Json json = result;
  // Bytes of a failing server must not spoil the file.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

StatusOr<RunResult> ParseResult(const std::string& json, const std::string& file) {
  auto bad = [&](std::string_view what) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID", fmt::format("{}: {}", file, what));
  };
  Json document = Json::parse(json, nullptr, false);
  if (!document.is_object() || !document.contains("schema")) return bad("is no benchmark result");
  if (document["schema"] != kSchema) {
    return bad(
        fmt::format("has schema {}; this version reads {}", document["schema"].dump(), kSchema));
  }
  try {
    return document.get<RunResult>();
  } catch (const nlohmann::json::exception& e) {
    return bad(e.what());
  }
}

}  // namespace torpor::bench
