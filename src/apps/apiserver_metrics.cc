#include "apps/apiserver_metrics.h"

#include <fmt/format.h>

#include "base/log.h"
#include "model/operation_metrics.h"

namespace torpor {
namespace {

class MeasuredStore : public control::Store {
 public:
  MeasuredStore(std::unique_ptr<control::Store> store, HistogramFamily commits)
      : store_(std::move(store)), commits_(std::move(commits)) {}

  Status Commit(const control::Batch& batch) override {
    const MonotonicTime start = Clock::Real()->Now();
    Status status = store_->Commit(batch);
    commits_.Observe({status.ok() ? "ok" : ReasonOf(status)}, Clock::Real()->Now() - start);
    return status;
  }
  StatusOr<std::optional<control::Row>> Get(control::Kind kind, std::string_view key) override {
    return store_->Get(kind, key);
  }
  StatusOr<std::vector<control::Row>> Scan(control::Kind kind, std::string_view prefix,
                                           std::string_view after, int limit) override {
    return store_->Scan(kind, prefix, after, limit);
  }
  StatusOr<std::vector<control::StoredEvent>> ListEvents(
      const control::EventQuery& query) override {
    return store_->ListEvents(query);
  }
  Status TrimEvents(WallTime before, int64_t per_atespace_max) override {
    return store_->TrimEvents(before, per_atespace_max);
  }

 private:
  const std::unique_ptr<control::Store> store_;
  const HistogramFamily commits_;
};

// VERB_RESUME -> resume
std::string VerbWord(torpor::v1::Verb verb) {
  std::string word = torpor::v1::Verb_Name(verb).substr(std::string_view("VERB_").size());
  for (char& c : word) c = static_cast<char>(tolower(static_cast<unsigned char>(c)));
  return word;
}

}  // namespace

ApiserverMetrics::ApiserverMetrics(MetricRegistry* registry)
    : registry_(registry),
      operations_(registry->Histogram("torpor_apiserver_operation_seconds",
                                      "Lifecycle operations ended, by outcome and reason.",
                                      {"verb", "outcome", "reason"})),
      phases_(registry->Histogram("torpor_apiserver_phase_seconds",
                                  "Phases of lifecycle operations.", {"verb", "phase"})),
      requests_(registry->Histogram("torpor_apiserver_request_seconds", "Unary API calls answered.",
                                    {"method", "code"})),
      commits_(registry->Histogram("torpor_apiserver_store_commit_seconds",
                                   "Commits of the store; result is ok or the reason.",
                                   {"result"})) {}

std::unique_ptr<control::Store> ApiserverMetrics::Measure(
    std::unique_ptr<control::Store> store) const {
  return std::make_unique<MeasuredStore>(std::move(store), commits_);
}

void ApiserverMetrics::Ended(const std::string& actor_uid,
                             const torpor::v1::OperationReport& report) const {
  const std::string verb = VerbWord(report.verb());
  const bool ok = !report.has_error();
  operations_.Observe({verb, ok ? "ok" : "failed", report.error().reason()},
                      report.total_ms() / 1e3);
  for (const auto& phase : report.phases()) {
    phases_.Observe({verb, phase.name()}, phase.duration_ms() / 1e3);
  }
  LogFields fields = {{"op", verb},
                      {"actor", actor_uid},
                      {"generation", fmt::to_string(report.generation())},
                      {"op_id", report.op_id()},
                      {"trigger", report.trigger()},
                      {"outcome", ok ? "ok" : "failed"},
                      {"ms", fmt::format("{:.1f}", report.total_ms())},
                      {"phases_ms", PhasesText(report.phases())},
                      {"trace_id", report.trace_id()}};
  if (!ok) fields.emplace_back("reason", report.error().reason());
  LogInfo("operation ended", fields);
}

void ApiserverMetrics::CountQueue(std::function<size_t()> queued) const {
  registry_->GaugeFunction("torpor_apiserver_queue_length", "Changes that wait for the writer.",
                           [queued = std::move(queued)] { return static_cast<double>(queued()); });
}

}  // namespace torpor
