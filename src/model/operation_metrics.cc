#include "model/operation_metrics.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "base/status.h"

namespace torpor {

using torpor::v1::Operation;
using torpor::v1::Phase;

std::string PhasesText(const google::protobuf::RepeatedPtrField<Phase>& phases) {
  std::vector<const Phase*> sorted;
  for (const Phase& phase : phases) sorted.push_back(&phase);
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Phase* a, const Phase* b) { return a->start_ms() < b->start_ms(); });
  std::string out;
  for (const Phase* phase : sorted) {
    out += fmt::format("{}{} {:.1f}", out.empty() ? "" : ", ", phase->name(), phase->duration_ms());
  }
  return out;
}

OperationMetrics::OperationMetrics(MetricRegistry* registry, const std::string& role)
    : silent_(false),
      operations_(registry->Histogram(fmt::format("torpor_{}_operation_seconds", role),
                                      "Operations ended, by outcome and reason.",
                                      {"op", "outcome", "reason"})),
      phases_(registry->Histogram(fmt::format("torpor_{}_phase_seconds", role),
                                  "Phases of operations.", {"op", "phase"})) {}

void OperationMetrics::Ended(const Operation& operation) const {
  if (silent_) return;
  const bool ok = operation.state() == Operation::STATE_SUCCEEDED;
  const std::string reason =
      ok ? ""
         : ReasonOf(ParseStatus(operation.error().SerializeAsString(), Code::kUnknown, "failed"));
  const Duration took = FromProto(operation.end_time()) - FromProto(operation.start_time());
  operations_.Observe({operation.method(), ok ? "ok" : "failed", reason}, took);
  for (const Phase& phase : operation.phases()) {
    phases_.Observe({operation.method(), phase.name()}, phase.duration_ms() / 1e3);
  }
  LogFields fields = {
      {"op", operation.method()},
      {"actor", operation.actor_uid()},
      {"generation", fmt::to_string(operation.generation())},
      {"op_id", operation.op_id()},
      {"outcome", ok ? "ok" : "failed"},
      {"ms", fmt::format("{:.1f}", std::chrono::duration<double, std::milli>(took).count())},
      {"phases_ms", PhasesText(operation.phases())}};
  if (!ok) fields.emplace_back("reason", reason);
  LogInfo("operation ended", fields);
}

}  // namespace torpor
