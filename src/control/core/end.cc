// What ends an activation without a capture: crash, revert, delete. None of them needs a live node:
// what cannot be told to a node now it learns when it registers again.

#include <algorithm>

#include "control/core/step_run.h"
#include "model/reasons.h"

namespace torpor::control::core {
namespace {

constexpr Duration kStopBackoffMax = std::chrono::seconds(30);
constexpr Duration kDeleteBackoffMax = std::chrono::seconds(60);
constexpr size_t kMessageMax = 4096;

}  // namespace

void StepRun::Crash(const std::string& reason, const std::string& message, Code code) {
  ateapi::ActorStatus& status = *record_.mutable_actor()->mutable_status();
  int64_t lost = status.generation();
  if (damaged_ != 0) {
    lost = damaged_;
  } else if (record_.has_binding()) {
    lost = record_.active_generation();
  } else if (record_.has_operation()) {
    lost = record_.operation().generation();
  }
  AbandonUploads();
  for (torpor::v1::GenerationRecord& generation : *record_.mutable_generations()) {
    const auto* local = FindStorage(generation, torpor::v1::DURABILITY_LOCAL);
    if (local != nullptr && !IsComplete(local)) {
      RemoveStorage(generation, torpor::v1::DURABILITY_LOCAL);
    }
  }
  DropGenerationsWithoutStorage();
  ateapi::ActorCrash& crash = *status.mutable_crash();
  crash.set_message(message.substr(0, kMessageMax));
  *crash.mutable_crash_time() = ToProto(context_.now);
  crash.set_reason(reason);
  crash.set_lost_generation(lost);
  const torpor::v1::GenerationRecord* durable = CurrentDurable(record_);
  crash.set_durable_generation(durable == nullptr ? 0 : durable->generation().generation());
  SetState(ateapi::ACTOR_STATE_CRASHED);
  torpor::v1::Event& event = AddEvent("ActorCrashed", torpor::v1::Event::SEVERITY_ERROR);
  event.set_reason(reason);
  event.set_message(fmt::format("generation {} is lost: {}", lost, crash.message()));
  if (record_.has_operation()) End(Error(code, reason, message));
  record_.clear_pending_exit();
  if (MayRevertByPolicy()) {
    *record_.add_crash_reverts() = ToProto(context_.now);
    StartRevert("crash_policy");
    return;
  }
  if (record_.has_binding()) {
    GarbageStop(record_.binding().node_name(), record_.binding().worker_uid(), false);
    ReleaseWorker();
  }
}

bool StepRun::MayRevertByPolicy() {
  if (record_.golden()) return false;
  torpor::v1::CrashPolicy policy = EffectiveCrashPolicy(record_, context_.tmpl);
  if (policy.on_crash() != torpor::v1::ON_CRASH_REVERT) return false;
  if (CurrentDurable(record_) == nullptr && !record_.has_borrowed()) return false;
  auto* reverts = record_.mutable_crash_reverts();
  WallTime begin = Later(context_.now, -FromProto(policy.window()));
  reverts->erase(std::remove_if(reverts->begin(), reverts->end(),
                                [&](const auto& time) { return FromProto(time) < begin; }),
                 reverts->end());
  return reverts->size() < policy.max_reverts();
}

std::string StepRun::HostNode() const {
  if (record_.has_binding()) return record_.binding().node_name();
  for (int i = record_.generations_size() - 1; i >= 0; --i) {
    const auto* local = FindStorage(record_.generations(i), torpor::v1::DURABILITY_LOCAL);
    if (local != nullptr) return local->node_name();
  }
  return record_.last_node_name();
}

bool StepRun::SendStop(bool delete_local) {
  const std::string node = HostNode();
  if (node.empty()) return false;
  if (!context_.cluster->NodeAlive(node)) {
    LeaveForNode(node);
    return false;
  }
  torpor::v1::NodeCall call;
  torpor::v1::StopActorRequest& stop = *call.mutable_stop();
  *stop.mutable_actor() = Identity(record_, record_.active_template_uid());
  if (record_.has_binding()) {
    stop.set_worker_uid(record_.binding().worker_uid());
  } else if (record_.operation().from_state() == ateapi::ACTOR_STATE_CRASHED) {
    stop.set_worker_uid(record_.last_worker_uid());
  }
  stop.set_delete_local_snapshots(delete_local);
  SendOperationCall(NewCall(std::move(call), node, context_.settings->stop_timeout));
  return true;
}

void StepRun::LeaveForNode(const std::string& node) {
  change_.fenced_nodes.push_back(node);
  // A tombstone: no record will name the actor when the node is back.
  if (record_.operation().verb() == torpor::v1::VERB_DELETE) GarbageStop(node, "", true);
}

void StepRun::AbandonUploads() {
  if (record_.has_operation() && record_.operation().step() == torpor::v1::OPERATION_STEP_UPLOAD) {
    torpor::v1::NodeCall call = record_.operation().call();
    DropUpload(record_.operation().generation(), record_.operation().has_call() ? &call : nullptr);
  }
  auto uploads = record_.uploads();
  record_.clear_uploads();
  for (const torpor::v1::BackgroundUpload& upload : uploads) {
    DropUpload(upload.generation(), &upload.call());
  }
}

void StepRun::StartRevert(const std::string& trigger, WallTime asked) {
  BeginRevert(torpor::v1::VERB_REVERT, trigger, asked, 0);
}

void StepRun::StartRollback(const StartVerb& event) {
  const torpor::v1::GenerationRecord* target = FindGeneration(record_, event.generation);
  if (target == nullptr) {
    change_.status =
        Fail(reasons::kGenerationNotFound,
             fmt::format("there is no generation {}; ListGenerations shows those that are kept",
                         event.generation),
             {{"generation", fmt::to_string(event.generation)}});
    return;
  }
  if (!IsComplete(FindStorage(*target, torpor::v1::DURABILITY_DURABLE))) {
    change_.status = Fail(reasons::kGenerationNotDurable,
                          fmt::format("generation {} is on its node only; suspend the actor, or "
                                      "take one that is in object storage",
                                      event.generation),
                          {{"generation", fmt::to_string(event.generation)}});
    return;
  }
  BeginRevert(torpor::v1::VERB_ROLLBACK, event.trigger, event.asked, event.generation);
}

void StepRun::BeginRevert(torpor::v1::Verb verb, const std::string& trigger, WallTime asked,
                          int64_t target) {
  AbandonUploads();
  ateapi::ActorStatus& status = *record_.mutable_actor()->mutable_status();
  status.set_generation(status.generation() + 1);
  torpor::v1::ActorOperation& operation =
      Begin(verb, ateapi::ACTOR_STATE_REVERTING, trigger, torpor::v1::OPERATION_STEP_TERMINATE,
            context_.settings->stop_timeout, asked);
  operation.set_source_generation(target);
  OpenLeg("mark", FromProto(operation.start_time()));
  if (!SendStop(/*delete_local=*/true)) FinishRevert();
}

void StepRun::Terminated(const CallOutcome& outcome) {
  if (outcome.state == CallState::kFailed && outcome.error.code() != Code::kNotFound) {
    // A refused generation was raised meanwhile.
    const bool tell = Judge(outcome.error) != Verdict::kRetry &&
                      ReasonOf(outcome.error) != reasons::kStaleGeneration.name;
    RetryLater(outcome.error, kStopBackoffMax, tell);
    return;
  }
  if (record_.operation().verb() == torpor::v1::VERB_DELETE) {
    BeginDeleteObjects();
  } else {
    FinishRevert();
  }
}

void StepRun::GiveUp(int64_t generation, const std::string& why) {
  record_.mutable_operation()->add_lost_generations(generation);
  torpor::v1::Event& event = AddEvent("GenerationLost", torpor::v1::Event::SEVERITY_WARNING);
  event.set_generation(generation);
  event.set_message(fmt::format("generation {} {}", generation, why));
}

void StepRun::FinishRevert() {
  torpor::v1::ActorOperation& operation = *record_.mutable_operation();
  const WallTime from = received_ == WallTime{} ? Time() : received_;
  operation.clear_call();
  const bool rollback = operation.verb() == torpor::v1::VERB_ROLLBACK;
  const ateapi::ActorCrash crash = record_.actor().status().crash();
  std::map<std::string, std::vector<std::string>> names;
  for (torpor::v1::GenerationRecord& generation : *record_.mutable_generations()) {
    const int64_t number = generation.generation().generation();
    const auto* local = FindStorage(generation, torpor::v1::DURABILITY_LOCAL);
    const auto* durable = FindStorage(generation, torpor::v1::DURABILITY_DURABLE);
    if (local != nullptr && local->node_name() != operation.node_name()) {
      names[local->node_name()].push_back(local->snapshot_name());  // that node removed its own
    }
    const bool newer = rollback && number > operation.source_generation();
    if (newer && durable != nullptr) {
      if (IsComplete(durable)) {
        GiveUp(number,
               fmt::format("was given up by a rollback to {}", operation.source_generation()));
      }
      GarbageUri(durable->uri(), nullptr);
      RemoveStorage(generation, torpor::v1::DURABILITY_DURABLE);
    } else if (IsComplete(local) && !IsComplete(durable)) {
      GiveUp(number, rollback ? "was given up by a rollback" : "was given up by a revert");
    } else if (!rollback && generation.damaged() && number == crash.lost_generation()) {
      GiveUp(number, "cannot be read and was given up by a revert");
    }
    RemoveStorage(generation, torpor::v1::DURABILITY_LOCAL);
    if (rollback && number == operation.source_generation()) generation.clear_damaged();
  }
  for (const auto& [node, list] : names) GarbageLocal(node, list);
  DropGenerationsWithoutStorage();
  ReleaseWorker();
  record_.mutable_actor()->mutable_status()->clear_crash();
  const torpor::v1::GenerationRecord* current = CurrentDurable(record_);
  if (current != nullptr) operation.set_source_generation(current->generation().generation());
  SetState(ateapi::ACTOR_STATE_SUSPENDED);
  AddLeg("finalize", from, Time());
  End(OkStatus());
}

void StepRun::StartDelete(bool any_state, WallTime asked) {
  AbandonUploads();
  if (record_.has_operation()) Supersede("delete");
  ateapi::ActorStatus& status = *record_.mutable_actor()->mutable_status();
  status.set_generation(status.generation() + 1);
  torpor::v1::ActorOperation& operation = Begin(
      torpor::v1::VERB_DELETE, ateapi::ACTOR_STATE_DELETING, record_.golden() ? "golden" : "api",
      torpor::v1::OPERATION_STEP_TERMINATE, context_.settings->stop_timeout, asked);
  operation.set_forced(any_state);
  OpenLeg("mark", FromProto(operation.start_time()));
  if (!SendStop(/*delete_local=*/true)) BeginDeleteObjects();
}

void StepRun::BeginDeleteObjects() {
  ReleaseWorker();
  SetStep(torpor::v1::OPERATION_STEP_DELETE);
  torpor::v1::ActorOperation& operation = *record_.mutable_operation();
  operation.clear_call();
  std::map<std::string, std::vector<std::string>> names;
  for (const torpor::v1::GenerationRecord& generation : record_.generations()) {
    if (const auto* durable = FindStorage(generation, torpor::v1::DURABILITY_DURABLE)) {
      operation.add_delete_uris(durable->uri());
      change_.delete_uris.push_back(durable->uri());
    }
    const auto* local = FindStorage(generation, torpor::v1::DURABILITY_LOCAL);
    if (local != nullptr && local->node_name() != operation.node_name()) {
      names[local->node_name()].push_back(local->snapshot_name());
    }
  }
  for (const auto& [node, list] : names) GarbageLocal(node, list);
  record_.clear_generations();
  if (operation.delete_uris().empty()) FinishDelete();
}

void StepRun::On(const ObjectDeleted& event) {
  if (!record_.has_operation() || record_.operation().step() != torpor::v1::OPERATION_STEP_DELETE) {
    return;
  }
  if (!event.status.ok()) {
    if (!record_.operation().has_retry_time()) {
      RetryLater(event.status, kDeleteBackoffMax, Judge(event.status) != Verdict::kRetry);
    }
    return;
  }
  auto* uris = record_.mutable_operation()->mutable_delete_uris();
  auto gone = std::remove(uris->begin(), uris->end(), event.uri);
  if (gone == uris->end()) return;
  uris->erase(gone, uris->end());
  change_.dirty = true;
  if (uris->empty()) FinishDelete();
}

void StepRun::FinishDelete() {
  AddLeg("delete", FromProto(record_.operation().step_time()), Time());
  AddEvent("ActorDeleted", torpor::v1::Event::SEVERITY_INFO);
  End(OkStatus());
  change_.removed = true;
}

void StepRun::GarbageLocal(const std::string& node, const std::vector<std::string>& names) {
  torpor::v1::NodeCall call;
  for (const std::string& name : names) call.mutable_delete_local()->add_snapshot_names(name);
  torpor::v1::GarbageRecord& garbage = change_.garbage.emplace_back();
  garbage.set_id(context_.ids->NewUuid());
  *garbage.mutable_call() = NewCall(std::move(call), node, context_.settings->stop_timeout);
}

void StepRun::GarbageStop(const std::string& node, const std::string& worker_uid,
                          bool delete_local) {
  torpor::v1::NodeCall call;
  call.mutable_stop()->set_delete_local_snapshots(delete_local);
  *call.mutable_stop()->mutable_actor() = Identity(record_, record_.active_template_uid());
  call.mutable_stop()->set_worker_uid(worker_uid);
  torpor::v1::GarbageRecord& garbage = change_.garbage.emplace_back();
  garbage.set_id(context_.ids->NewUuid());
  *garbage.mutable_call() = NewCall(std::move(call), node, context_.settings->stop_timeout);
}

void StepRun::GarbageUri(const std::string& uri, const torpor::v1::NodeCall* upload) {
  torpor::v1::GarbageRecord& garbage = change_.garbage.emplace_back();
  garbage.set_id(context_.ids->NewUuid());
  garbage.set_uri(uri);
  if (upload != nullptr) *garbage.mutable_upload() = *upload;
}

}  // namespace torpor::control::core
