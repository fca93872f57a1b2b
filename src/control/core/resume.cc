// The operation resume: one commit chooses source and worker and binds them, one makes it RUNNING.

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "control/core/step_run.h"
#include "model/reasons.h"

namespace torpor::control::core {
namespace {

using torpor::v1::SnapshotSource;

std::map<std::string, std::string> Labels(const ateapi::Selector& selector) {
  return {selector.match_labels().begin(), selector.match_labels().end()};
}

void Assign(const torpor::v1::WorkerRecord& worker, ateapi::WorkerAssignment& assignment) {
  const ateapi::Worker& shown = worker.worker();
  assignment.set_worker_namespace(shown.worker_namespace());
  assignment.set_worker_pool(shown.worker_pool());
  assignment.set_worker_pod(shown.worker_pod());
  assignment.set_worker_pod_uid(shown.worker_pod_uid());
  *assignment.mutable_worker_pod_ips() = shown.ips();
  assignment.mutable_worker()->set_name(shown.metadata().name());
  assignment.set_node_name(shown.node_name());
  assignment.set_worker_epoch(shown.epoch());
}

// Routers read the answer of an open operation, too (router/park/wake_progress.h).
torpor::v1::Choice SourceChoice(const std::vector<SnapshotSource>& sources, bool narrowed) {
  torpor::v1::Choice choice;
  choice.set_question("source");
  if (sources.empty()) {
    choice.set_answer("cold boot");
    choice.set_reason("the actor has no snapshot");
    return choice;
  }
  const SnapshotSource& first = sources.front();
  choice.set_answer(first.has_durable() ? (first.shared() ? "shared" : "durable") : "local");
  choice.set_reason(narrowed ? "the template changed since the capture: volumes only"
                             : fmt::format("generation {} is the newest", first.generation()));
  return choice;
}

constexpr Duration kFailedRecently = std::chrono::minutes(10);

// Where the last resume failed not long ago; empty = nowhere. The fault may be the actor's own, or
// that of something all share: then the next worker fails as well, and nothing is lost.
std::string FailedWorker(const torpor::v1::ActorRecord& record, WallTime now) {
  const ateapi::ActorStatus& status = record.actor().status();
  if (!status.has_last_error() || status.last_error().verb() != torpor::v1::VERB_RESUME) return {};
  if (Later(FromProto(status.last_error().time()), kFailedRecently) <= now) return {};
  return record.last_worker_uid();
}

// Whether the actor's state is what it was: the guest executed nothing and no data was lost.
bool IsUntouched(const Status& error) {
  return error.code() != Code::kDataLoss && MetadataOf(error)["guest_ran"] == "false";
}

}  // namespace

Status StepRun::PickSources(scheduler::Request& request, std::vector<SnapshotSource>& sources,
                            std::string& local_node) const {
  if (const torpor::v1::GenerationRecord* current = Current(record_)) {
    const auto* local = FindStorage(*current, torpor::v1::DURABILITY_LOCAL);
    const auto* durable = FindStorage(*current, torpor::v1::DURABILITY_DURABLE);
    if (IsComplete(local)) {
      local_node = local->node_name();
      if (IsComplete(durable)) {
        request.preferred_node = local_node;
      } else {
        request.required_node = local_node;
        if (!context_.cluster->NodeAlive(local_node)) {
          return Fail(
              reasons::kNodeUnreachable,
              fmt::format("the only snapshot is on node {}, which does not answer; try again "
                          "when it is back",
                          local_node),
              {{"node", local_node}});
        }
      }
      SnapshotSource& source = sources.emplace_back();
      source.set_generation(current->generation().generation());
      source.set_fidelity(local->fidelity());
      source.set_local_name(local->snapshot_name());
    }
    if (IsComplete(durable)) {
      SnapshotSource& source = sources.emplace_back();
      source.set_generation(current->generation().generation());
      source.set_fidelity(durable->fidelity());
      source.mutable_durable()->set_uri(durable->uri());
      source.mutable_durable()->set_manifest_sha256(current->manifest_sha256());
    }
  } else if (record_.has_borrowed()) {
    SnapshotSource& source = sources.emplace_back();
    source.set_generation(record_.borrowed().generation());
    source.set_fidelity(record_.borrowed().fidelity());
    *source.mutable_durable() = record_.borrowed().snapshot();
    source.set_shared(true);
  }
  return OkStatus();
}

torpor::v1::Fidelity StepRun::RestoredFidelity(const std::vector<SnapshotSource>& sources,
                                               bool& narrowed) const {
  narrowed = false;
  if (sources.empty()) return torpor::v1::FIDELITY_UNSPECIFIED;
  const torpor::v1::GenerationRecord* current = Current(record_);
  const std::string& captured = current != nullptr ? current->generation().actor_template_uid()
                                                   : record_.borrowed().template_uid();
  narrowed = captured != context_.tmpl->actor_template().metadata().uid();
  if (narrowed) return torpor::v1::FIDELITY_VOLUMES;
  // What every source can give: which of them is used in the end must not matter.
  torpor::v1::Fidelity fidelity = sources.front().fidelity();
  for (const SnapshotSource& source : sources) fidelity = std::min(fidelity, source.fidelity());
  return fidelity;
}

void StepRun::StartResume(const StartVerb& event) {
  if (context_.tmpl == nullptr) {
    change_.status =
        Fail(reasons::kTemplateMissing,
             "the actor's template does not exist any more; give it another with UpdateActor");
    return;
  }
  const ateapi::ActorTemplate& tmpl = context_.tmpl->actor_template();
  const std::string& template_uid = tmpl.metadata().uid();

  scheduler::Request request;
  std::vector<SnapshotSource> sources;
  std::string local_node;
  change_.status = PickSources(request, sources, local_node);
  if (!change_.status.ok()) return;
  request.sandbox_class = tmpl.sandbox_config().sandbox_class();
  if (tmpl.has_worker_selector()) request.selectors.push_back(Labels(tmpl.worker_selector()));
  if (record_.actor().has_worker_selector()) {
    request.selectors.push_back(Labels(record_.actor().worker_selector()));
  }
  request.needs = Needs(tmpl, *context_.settings);
  request.failed_worker = FailedWorker(record_, context_.now);
  bool narrowed = false;
  torpor::v1::Fidelity fidelity = RestoredFidelity(sources, narrowed);
  std::shared_ptr<const torpor::v1::CpuRecord> cpu;
  if (fidelity == torpor::v1::FIDELITY_MEMORY) {
    const torpor::v1::GenerationRecord* current = Current(record_);
    cpu = context_.cluster->FindCpu(current != nullptr ? current->cpu_id()
                                                       : record_.borrowed().cpu_id());
    if (cpu != nullptr) request.cpu = &cpu->cpu();
  }
  const torpor::v1::WorkerRecord* worker = nullptr;
  const WallTime placing = event.refused == WallTime{} ? Time() : event.refused;
  scheduler::Decision decision = context_.cluster->Place(request, &worker);
  if (worker == nullptr) {
    change_.full_only = decision.full_only;
    change_.awaited = decision.awaited;
    change_.status = Fail(reasons::kNoCapacity, "no worker has room: " + decision.summary);
    for (const auto& [obstacle, count] : decision.obstacles) {
      AddMetadata(change_.status, scheduler::ObstacleText(obstacle), fmt::to_string(count));
    }
    if (!decision.missing.empty()) {
      AddMetadata(change_.status, "missing_cpu_features",
                  fmt::format("{}", fmt::join(decision.missing, ",")));
    }
    return;
  }
  if (worker->node_name() != local_node) {
    std::erase_if(sources, [](const SnapshotSource& s) { return !s.has_durable(); });
  }

  // An upload that is overtaken goes on without anybody waiting for it.
  if (state() == ateapi::ACTOR_STATE_SUSPENDING) {
    if (record_.operation().has_call()) {
      torpor::v1::BackgroundUpload& upload = *record_.add_uploads();
      upload.set_generation(record_.operation().generation());
      *upload.mutable_call() = record_.operation().call();
    } else {
      DropUpload(record_.operation().generation(), nullptr);
    }
    Supersede("resume");
  }
  ateapi::ActorStatus& status = *record_.mutable_actor()->mutable_status();
  status.set_generation(status.generation() + 1);
  Duration timeout = context_.settings->start_timeout + LongestProbe(tmpl);
  torpor::v1::ActorOperation& operation =
      Begin(torpor::v1::VERB_RESUME, ateapi::ACTOR_STATE_RESUMING, event.trigger,
            torpor::v1::OPERATION_STEP_START, timeout, event.asked);
  const WallTime placed = Time();
  AddLeg("load", FromProto(operation.start_time()), placing);
  AddLeg("place", placing, placed);
  OpenLeg("bind", placed);
  operation.set_worker_name(worker->worker().worker_pod());

  torpor::v1::Binding& binding = *record_.mutable_binding();
  binding.set_worker_uid(worker->worker().metadata().name());
  binding.set_worker_epoch(worker->worker().epoch());
  binding.set_node_name(worker->node_name());
  binding.set_memory_bytes(request.needs.memory_bytes);
  binding.set_cpu_milli(request.needs.cpu_milli);
  Assign(*worker, *status.mutable_worker_assignment());
  record_.set_active_generation(status.generation());
  record_.set_last_node_name(worker->node_name());
  record_.set_last_worker_uid(binding.worker_uid());
  record_.set_active_template_uid(template_uid);
  record_.set_capture_fidelity(record_.golden() ? torpor::v1::FIDELITY_MEMORY
                                                : TemplateFidelity(tmpl));
  const ateapi::SnapshotConfig& config = tmpl.snapshot_config();
  record_.set_keep_generations(config.has_keep_generations() ? config.keep_generations() : 1);
  record_.set_storage_location(config.storage_location());
  *record_.mutable_drain_grace() = tmpl.http().drain_grace();
  *record_.mutable_drain_max() = tmpl.http().drain_max();

  torpor::v1::NodeCall call;
  torpor::v1::StartActorRequest& start = *call.mutable_start();
  *start.mutable_actor() = Identity(record_, template_uid);
  start.set_worker_uid(binding.worker_uid());
  start.set_worker_epoch(binding.worker_epoch());
  *start.mutable_spec() = MakeSpec(tmpl, *context_.settings);
  torpor::v1::IdlePolicy idle = EffectiveIdlePolicy(record_, context_.tmpl);
  if (idle.has_freeze_after()) *start.mutable_spec()->mutable_freeze_after() = idle.freeze_after();
  start.mutable_assets()->set_sandbox_class(tmpl.sandbox_config().sandbox_class());
  fidelity = RestoredFidelity(sources, narrowed);
  if (!sources.empty()) {
    start.set_fidelity(fidelity);
    operation.set_source_generation(sources.front().generation());
    operation.set_fidelity(fidelity);
  }
  *operation.add_choices() = SourceChoice(sources, narrowed);
  *operation.add_choices() = decision.choice;
  for (SnapshotSource& source : sources) *start.add_sources() = std::move(source);
  SendOperationCall(NewCall(std::move(call), worker->node_name(), timeout));
}

void StepRun::NoteSource(const torpor::v1::NodeCall& call, const torpor::v1::StartResult& result) {
  torpor::v1::ActorOperation& operation = *record_.mutable_operation();
  if (result.source_generation() != 0) operation.set_source_generation(result.source_generation());
  if (result.fidelity() != torpor::v1::FIDELITY_UNSPECIFIED) {
    operation.set_fidelity(result.fidelity());
  }
  if (result.source() != torpor::v1::DURABILITY_DURABLE) return;
  for (const SnapshotSource& source : call.start().sources()) {
    if (!source.has_local_name()) continue;
    // The cache was gone or damaged, so the node went to object storage.
    torpor::v1::GenerationRecord* generation = FindGeneration(record_, source.generation());
    if (generation != nullptr) RemoveStorage(*generation, torpor::v1::DURABILITY_LOCAL);
    GarbageLocal(call.node_name(), {source.local_name()});
    for (torpor::v1::Choice& choice : *operation.mutable_choices()) {
      if (choice.question() != "source") continue;
      choice.set_answer("durable");
      torpor::v1::Choice::Rejected& rejected = *choice.add_rejected();
      rejected.set_candidate("local");
      rejected.set_reason("the node does not have it any more, or it is damaged");
    }
  }
}

void StepRun::NoteDamage(const Status& error, const torpor::v1::NodeCall& call) {
  if (error.code() != Code::kDataLoss || call.start().sources().empty()) return;
  const SnapshotSource& source = call.start().sources(0);
  // The number of a borrowed one is another actor's.
  torpor::v1::GenerationRecord* generation =
      source.shared() ? nullptr : FindGeneration(record_, source.generation());
  if (generation == nullptr) return;
  generation->set_damaged(true);
  damaged_ = source.generation();
}

bool StepRun::MayPlaceAgain(const CallOutcome& outcome) {
  const Status& error = outcome.error;
  const std::string reason = ReasonOf(error);
  if (reason == reasons::kWorkerRestarted.name || reason == reasons::kWorkerNotFound.name) {
    if (MetadataOf(error)["guest_ran"] == "true") return false;
    change_.stale_workers.push_back(record_.binding());
    return true;
  }
  // The record is above what the node has seen now.
  if (reason == reasons::kStaleGeneration.name) {
    return !outcome.accepted && record_.actor().status().generation() > record_.active_generation();
  }
  // On the node a process was replaced while the start went through it. The node has made sure that
  // nothing of it runs any more, and what ran was not told to anybody.
  return outcome.accepted && error.code() == Code::kUnavailable &&
         (reason.empty() || reason == reasons::kNodeUnreachable.name ||
          reason == reasons::kInternal.name);
}

void StepRun::StartAnswered(const CallOutcome& outcome, const torpor::v1::NodeCall& call) {
  ateapi::ActorStatus& status = *record_.mutable_actor()->mutable_status();
  if (outcome.state == CallState::kSucceeded) {
    const torpor::v1::StartResult& result = outcome.operation.start();
    status.mutable_worker_assignment()->set_address(result.address());
    *status.mutable_last_active_time() = ToProto(context_.now);
    NoteSource(call, result);
    SetState(ateapi::ACTOR_STATE_RUNNING);
    AddLeg("finalize", received_, Time());
    End(OkStatus());
    return;
  }
  Status error = outcome.error;
  const bool again = MayPlaceAgain(outcome);
  if (again) {
    // Whoever cannot wait any longer may try again.
    error = Fail(reasons::kNodeUnreachable,
                 fmt::format("the place that was chosen is gone: {}", std::string(error.message())),
                 {{"cause", ReasonOf(error)}});
  } else if (outcome.accepted && Judge(error) == Verdict::kCrash && !IsUntouched(error)) {
    NoteDamage(error, call);
    Crash(ReasonOf(error), std::string(error.message()), error.code());
    return;
  }
  State back = record_.operation().from_state();
  if (back == ateapi::ACTOR_STATE_SUSPENDING) back = ateapi::ACTOR_STATE_PAUSED;
  ReleaseWorker();
  SetState(back);
  End(error, again);
}

}  // namespace torpor::control::core
