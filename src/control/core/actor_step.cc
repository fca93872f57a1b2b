#include "control/core/actor_step.h"

#include <algorithm>

#include "base/log.h"
#include "base/trace.h"
#include "control/core/step_run.h"
#include "model/actor_lifecycle.h"
#include "model/reasons.h"

namespace torpor::control::core {
namespace {

constexpr int kSeenEventsMax = 16;
constexpr size_t kMessageMax = 4096;
// An operation is overdue this much after the timeout of its node call.
constexpr Duration kDeadlineSlack = std::chrono::seconds(10);

}  // namespace

Change Step(const Context& context, torpor::v1::ActorRecord& record, const Event& event) {
  Change change;
  StepRun run(context, record, change);
  std::visit([&](const auto& e) { run.On(e); }, event);
  if (change.dirty) RenderStatus(record);
  for (Ended& ended : change.ended) {
    if (ended.actor.metadata().uid().empty()) ended.actor = record.actor();
  }
  return change;
}

std::optional<WallTime> NextTick(const torpor::v1::ActorRecord& record) {
  std::optional<WallTime> next;
  auto at = [&](const google::protobuf::Timestamp& time) {
    WallTime t = FromProto(time);
    if (!next || t < *next) next = t;
  };
  if (record.has_operation()) {
    const torpor::v1::ActorOperation& operation = record.operation();
    if (operation.has_retry_time()) at(operation.retry_time());
    if (operation.has_call() && operation.call().has_query_time())
      at(operation.call().query_time());
  }
  for (const torpor::v1::BackgroundUpload& upload : record.uploads()) {
    if (upload.call().has_query_time()) at(upload.call().query_time());
  }
  return next;
}

void StepRun::On(const StartVerb& event) {
  traceparent_ = event.traceparent;
  switch (event.verb) {
    case torpor::v1::VERB_RESUME:
      return StartResume(event);
    case torpor::v1::VERB_PAUSE:
      return StartCapture(event);
    case torpor::v1::VERB_SUSPEND:
      return state() == ateapi::ACTOR_STATE_PAUSED ? SuspendPaused(event) : StartCapture(event);
    case torpor::v1::VERB_REVERT:
      return StartRevert(event.trigger, event.asked);
    case torpor::v1::VERB_ROLLBACK:
      return StartRollback(event);
    case torpor::v1::VERB_DELETE:
      return StartDelete(event.any_state, event.asked);
    default:
      change_.status = Fail(reasons::kNotImplemented, "this verb is not served");
  }
}

void StepRun::On(const CallAnswer& event) {
  if (record_.has_operation() && record_.operation().call().op_id() == event.op_id) {
    torpor::v1::NodeCall& call = *record_.mutable_operation()->mutable_call();
    CallOutcome outcome = Resolve(call, event.answer, event.query, event.refused, context_.now);
    change_.dirty = true;
    if (outcome.state == CallState::kOpen) {
      bool stopping = record_.operation().step() == torpor::v1::OPERATION_STEP_TERMINATE;
      if (!stopping || context_.cluster->NodeAlive(call.node_name())) return;
      // Revert and delete work without a live node; it tidies up when it registers again.
      LeaveForNode(call.node_name());
      record_.mutable_operation()->clear_node_name();
      outcome.state = CallState::kSucceeded;
    }
    torpor::v1::NodeCall ended = call;
    record_.mutable_operation()->clear_call();
    received_ = event.received == WallTime{} ? Time() : event.received;
    AddPhases(ended, outcome.operation, event);
    OperationAnswered(outcome, ended);
    JudgePendingExit();
    return;
  }
  for (int i = 0; i < record_.uploads_size(); ++i) {
    torpor::v1::NodeCall& call = *record_.mutable_uploads(i)->mutable_call();
    if (call.op_id() != event.op_id) continue;
    CallOutcome outcome = Resolve(call, event.answer, event.query, event.refused, context_.now);
    change_.dirty = true;
    if (outcome.state != CallState::kOpen) BackgroundUploadAnswered(i, outcome);
    return;
  }
}

void StepRun::OperationAnswered(const CallOutcome& outcome, const torpor::v1::NodeCall& call) {
  // The node has seen a higher generation than the store, which came from a backup: go above it.
  if (ReasonOf(outcome.error) == reasons::kStaleGeneration.name) {
    ateapi::ActorStatus& status = *record_.mutable_actor()->mutable_status();
    int64_t highest = std::strtoll(MetadataOf(outcome.error)["highest"].c_str(), nullptr, 10);
    status.set_generation(std::max(status.generation(), highest));
    change_.dirty = true;
  }
  switch (record_.operation().step()) {
    case torpor::v1::OPERATION_STEP_START:
      return StartAnswered(outcome, call);
    case torpor::v1::OPERATION_STEP_CHECKPOINT:
      return CaptureAnswered(outcome);
    case torpor::v1::OPERATION_STEP_UPLOAD:
      return UploadAnswered(outcome);
    case torpor::v1::OPERATION_STEP_TERMINATE:
      return Terminated(outcome);
    default:
      End(Fail(reasons::kInternal, "no step waits for the node's " + MethodName(call)));
  }
}

void StepRun::On(const Exited& event) {
  const torpor::v1::ExitReport& report = event.report;
  const auto& seen = record_.seen_event_ids();
  if (std::find(seen.begin(), seen.end(), report.event_id()) != seen.end()) return;
  if (!record_.has_binding() || report.generation() != record_.active_generation()) return;
  change_.dirty = true;
  record_.add_seen_event_ids(report.event_id());
  if (record_.seen_event_ids_size() > kSeenEventsMax) {
    record_.mutable_seen_event_ids()->erase(record_.seen_event_ids().begin());
  }
  *record_.mutable_pending_exit() = report;
  JudgePendingExit();
}

// While an operation is under way its outcome says more than an exit: a capture ends the sandbox,
// too. What is RUNNING afterwards has lost its sandbox.
void StepRun::JudgePendingExit() {
  if (!record_.has_pending_exit()) return;
  if (record_.pending_exit().generation() != record_.active_generation() ||
      !record_.has_binding()) {
    record_.clear_pending_exit();
    return;
  }
  if (state() != ateapi::ACTOR_STATE_RUNNING) return;
  torpor::v1::ExitReport report = record_.pending_exit();
  record_.clear_pending_exit();
  std::string reason = report.reason();
  if (!IsCrashReason(reason)) {
    reason = report.out_of_memory() ? reasons::kOutOfMemory.name : reasons::kWorkloadExited.name;
  }
  std::string message = report.message();
  if (message.empty()) {
    message = report.signal() != 0 ? fmt::format("container {} was ended by signal {}",
                                                 report.container(), report.signal())
                                   : fmt::format("container {} exited with code {}",
                                                 report.container(), report.exit_code());
  }
  Crash(reason, message, Code::kInternal);
}

void StepRun::On(const HostLost& event) {
  if (!record_.has_binding()) return;
  if (state() == ateapi::ACTOR_STATE_RUNNING) {
    return Crash(event.reason, event.message, Code::kInternal);
  }
  // The node's journal outlives its workers, so the outcome of an open operation is asked of the
  // node; after a reboot there is no journal either.
  if (!record_.has_operation()) return;
  if (!event.rebooted) {
    torpor::v1::ExitReport& exit = *record_.mutable_pending_exit();
    exit.set_generation(record_.active_generation());
    exit.set_reason(event.reason);
    exit.set_message(event.message);
    change_.dirty = true;
    return;
  }
  torpor::v1::OperationStep step = record_.operation().step();
  CallOutcome lost;
  lost.state = CallState::kFailed;
  lost.accepted = true;
  if (step == torpor::v1::OPERATION_STEP_START) {
    lost.error = Fail(reasons::kNodeUnreachable, event.message);
  } else if (step == torpor::v1::OPERATION_STEP_CHECKPOINT) {
    lost.error = Error(Code::kInternal, event.reason, event.message);
  } else {
    return;  // stop and upload are asked of the node again
  }
  torpor::v1::NodeCall call = record_.operation().call();
  record_.mutable_operation()->clear_call();
  change_.dirty = true;
  OperationAnswered(lost, call);
}

void StepRun::On(const LocalLost& event) {
  bool current_lost = false;
  const std::string current_node = LocalNode(record_);
  const torpor::v1::GenerationRecord* current = Current(record_);
  const int64_t current_number = current == nullptr ? 0 : current->generation().generation();
  for (torpor::v1::GenerationRecord& generation : *record_.mutable_generations()) {
    const auto* local = FindStorage(generation, torpor::v1::DURABILITY_LOCAL);
    if (!IsComplete(local) || std::find(event.names.begin(), event.names.end(),
                                        local->snapshot_name()) == event.names.end()) {
      continue;
    }
    change_.dirty = true;
    RemoveStorage(generation, torpor::v1::DURABILITY_LOCAL);
    bool durable = IsComplete(FindStorage(generation, torpor::v1::DURABILITY_DURABLE));
    if (generation.generation().generation() == current_number && !durable) current_lost = true;
  }
  if (!change_.dirty) return;
  DropGenerationsWithoutStorage();
  // A RUNNING actor has more than any snapshot; an upload says itself that its source is gone.
  if (current_lost && state() == ateapi::ACTOR_STATE_PAUSED) {
    Crash(reasons::kLocalSnapshotGone.name, "the local snapshot is gone from node " + current_node,
          Code::kDataLoss);
  }
}

void StepRun::On(const Tick&) {
  if (record_.has_operation()) {
    torpor::v1::ActorOperation& operation = *record_.mutable_operation();
    if (operation.has_call()) CallDue(*operation.mutable_call());
    if (operation.has_retry_time() && FromProto(operation.retry_time()) <= context_.now) {
      operation.clear_retry_time();
      change_.dirty = true;
      if (operation.step() == torpor::v1::OPERATION_STEP_UPLOAD) {
        BeginUpload();
      } else if (operation.step() == torpor::v1::OPERATION_STEP_TERMINATE) {
        if (!SendStop(/*delete_local=*/true)) {
          operation.verb() == torpor::v1::VERB_DELETE ? BeginDeleteObjects() : FinishRevert();
        }
      } else if (operation.step() == torpor::v1::OPERATION_STEP_DELETE) {
        for (const std::string& uri : operation.delete_uris()) change_.delete_uris.push_back(uri);
      }
    }
  }
  for (torpor::v1::BackgroundUpload& upload : *record_.mutable_uploads()) {
    CallDue(*upload.mutable_call());
  }
}

void StepRun::CallDue(torpor::v1::NodeCall& call) {
  if (!call.has_query_time() || FromProto(call.query_time()) > context_.now) return;
  call.clear_query_time();
  change_.dirty = true;
  bool overdue =
      Later(FromProto(call.sent_time()), FromProto(call.timeout()) + kDeadlineSlack) < context_.now;
  // Past its time an operation that never began must not begin any more; a stop or an upload may.
  bool refuse = overdue && (call.has_start() || call.has_capture());
  change_.sends.push_back({call, call.unknown() || refuse, refuse});
}

void StepRun::On(const Recover&) {
  auto ask = [&](torpor::v1::NodeCall& call) {
    call.clear_query_time();
    change_.sends.push_back({call, /*query=*/true, /*refuse=*/false});
  };
  if (record_.has_operation()) {
    torpor::v1::ActorOperation& operation = *record_.mutable_operation();
    if (operation.has_call()) ask(*operation.mutable_call());
    if (operation.step() == torpor::v1::OPERATION_STEP_DELETE && !operation.has_retry_time()) {
      for (const std::string& uri : operation.delete_uris()) change_.delete_uris.push_back(uri);
    }
  }
  for (torpor::v1::BackgroundUpload& upload : *record_.mutable_uploads()) {
    ask(*upload.mutable_call());
  }
}

void StepRun::SetState(State to) {
  State from = state();
  change_.dirty = true;
  if (from == to) return;
  CHECK(IsLegalEdge(from, to));
  record_.mutable_actor()->mutable_status()->set_state(to);
  torpor::v1::Event& event = AddEvent("ActorStateChanged", torpor::v1::Event::SEVERITY_INFO);
  event.set_from_state(from);
  event.set_to_state(to);
}

torpor::v1::ActorOperation& StepRun::Begin(torpor::v1::Verb verb, State through,
                                           const std::string& trigger,
                                           torpor::v1::OperationStep step, Duration timeout,
                                           WallTime asked) {
  torpor::v1::ActorOperation operation;
  operation.set_op_id(context_.ids->NewUuid());
  operation.set_verb(verb);
  operation.set_trigger(trigger);
  operation.set_traceparent(traceparent_.empty() ? TraceparentOfUuid(operation.op_id())
                                                 : traceparent_);
  operation.set_from_state(state());
  const bool known = asked != WallTime{} && asked < context_.now;
  *operation.mutable_start_time() = ToProto(known ? asked : context_.now);
  *operation.mutable_deadline() = ToProto(Later(context_.now, timeout + kDeadlineSlack));
  operation.set_generation(record_.actor().status().generation());
  *record_.mutable_operation() = std::move(operation);
  SetStep(step);
  SetState(through);
  return *record_.mutable_operation();
}

void StepRun::SetStep(torpor::v1::OperationStep step) {
  torpor::v1::ActorOperation& operation = *record_.mutable_operation();
  operation.set_step(step);
  operation.set_attempts(0);
  operation.clear_retry_time();
  *operation.mutable_step_time() = ToProto(context_.now);
  change_.dirty = true;
}

namespace {

torpor::v1::OperationReport ReportOf(const torpor::v1::ActorOperation& operation, double total_ms) {
  torpor::v1::OperationReport report;
  report.set_op_id(operation.op_id());
  report.set_verb(operation.verb());
  report.set_trigger(operation.trigger());
  report.set_trace_id(TraceIdOf(operation.traceparent()));
  *report.mutable_start_time() = operation.start_time();
  report.set_total_ms(total_ms);
  *report.mutable_phases() = operation.phases();
  *report.mutable_choices() = operation.choices();
  report.set_generation(operation.generation());
  report.set_source_generation(operation.source_generation());
  report.set_fidelity(operation.fidelity());
  report.set_node_name(operation.node_name());
  report.set_worker_name(operation.worker_name());
  *report.mutable_lost_generations() = operation.lost_generations();
  return report;
}

// A capture that nobody asked for was called off because the actor is in use: nothing went wrong.
bool IsCalledOff(const torpor::v1::ActorOperation& operation, const Status& status) {
  return ReasonOf(status) == reasons::kActorBusy.name &&
         (operation.trigger() == "idle" || operation.trigger() == "pressure");
}

}  // namespace

torpor::v1::OperationReport OpenReport(const torpor::v1::ActorRecord& record, WallTime now) {
  const torpor::v1::ActorOperation& operation = record.operation();
  torpor::v1::OperationReport report =
      ReportOf(operation, std::max(0.0, ToMs(now - FromProto(operation.start_time()))));
  report.set_step(
      torpor::v1::OperationStep_Name(operation.step()).substr(sizeof("OPERATION_STEP_") - 1));
  if (operation.has_last_error()) *report.mutable_error() = operation.last_error();
  return report;
}

void StepRun::End(const Status& status, bool place_again) {
  const torpor::v1::ActorOperation& operation = record_.operation();
  torpor::v1::OperationReport report = ReportOf(operation, SinceStart(Time()));
  ateapi::ActorStatus& shown = *record_.mutable_actor()->mutable_status();
  if (status.ok()) {
    shown.clear_last_error();
  } else {
    torpor::v1::OperationError& error = *report.mutable_error();
    error.set_code(static_cast<int>(status.code()));
    error.set_reason(ReasonOf(status));
    error.set_message(std::string(status.message()).substr(0, kMessageMax));
    *error.mutable_time() = ToProto(context_.now);
    error.set_op_id(operation.op_id());
    error.set_verb(operation.verb());
    if (!IsCalledOff(operation, status)) *shown.mutable_last_error() = error;
  }
  Ended ended{operation.op_id(), operation.verb(), status, {}, {}, place_again};
  ended.lost_generations.assign(operation.lost_generations().begin(),
                                operation.lost_generations().end());
  if (!ended.status.ok()) AddMetadata(ended.status, "op_id", operation.op_id());
  change_.ended.push_back(std::move(ended));
  change_.reports.push_back(std::move(report));
  record_.set_report_count(record_.report_count() + 1);
  record_.clear_operation();
  change_.dirty = true;
}

void StepRun::Supersede(const std::string& by) {
  End(Fail(reasons::kSuperseded, "the operation was ended by a " + by));
}

torpor::v1::Event& StepRun::AddEvent(const std::string& type,
                                     torpor::v1::Event::Severity severity) {
  torpor::v1::Event& event = change_.events.emplace_back();
  event.set_event_id(context_.ids->NewUuid());
  *event.mutable_time() = ToProto(context_.now);
  event.set_severity(severity);
  event.set_type(type);
  const ateapi::ResourceMetadata& metadata = record_.actor().metadata();
  event.mutable_actor()->set_atespace(metadata.atespace());
  event.mutable_actor()->set_name(metadata.name());
  event.set_actor_uid(metadata.uid());
  if (record_.has_binding()) event.set_node_name(record_.binding().node_name());
  event.set_generation(record_.actor().status().generation());
  if (record_.has_operation()) {
    event.set_op_id(record_.operation().op_id());
    event.set_reason(record_.operation().trigger());
  }
  return event;
}

torpor::v1::NodeCall StepRun::NewCall(torpor::v1::NodeCall call, const std::string& node,
                                      Duration timeout) {
  call.set_node_name(node);
  *call.mutable_timeout() = ToProto(timeout);
  torpor::v1::OpHeader& header = *Header(call);
  header.set_actor_uid(record_.actor().metadata().uid());
  header.set_generation(record_.actor().status().generation());
  *header.mutable_timeout() = ToProto(timeout);
  header.set_traceparent(record_.operation().traceparent());
  Renew(call, context_.ids->NewUuid(), context_.now);
  return call;
}

void StepRun::SendOperationCall(torpor::v1::NodeCall call) {
  torpor::v1::ActorOperation& operation = *record_.mutable_operation();
  operation.set_node_name(call.node_name());
  *operation.mutable_call() = call;
  change_.sends.push_back({std::move(call), false, false});
  change_.dirty = true;
}

void StepRun::ReleaseWorker() {
  record_.clear_binding();
  record_.mutable_actor()->mutable_status()->clear_worker_assignment();
  change_.dirty = true;
}

void StepRun::RetryLater(const Status& error, Duration cap, bool tell) {
  torpor::v1::ActorOperation& operation = *record_.mutable_operation();
  torpor::v1::OperationError& last = *operation.mutable_last_error();
  last.set_code(static_cast<int>(error.code()));
  last.set_reason(ReasonOf(error));
  last.set_message(std::string(error.message()).substr(0, kMessageMax));
  *last.mutable_time() = ToProto(context_.now);
  last.set_op_id(operation.op_id());
  last.set_verb(operation.verb());
  *record_.mutable_actor()->mutable_status()->mutable_last_error() = last;
  *operation.mutable_retry_time() =
      ToProto(Later(context_.now, Backoff(operation.attempts(), cap)));
  operation.set_attempts(operation.attempts() + 1);
  if (tell) change_.told.push_back({operation.op_id(), error});
  change_.dirty = true;
}

}  // namespace torpor::control::core
