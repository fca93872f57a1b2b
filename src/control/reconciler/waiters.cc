// Calls that wait for an actor: for an operation to end, for one to make way, for capacity, for a
// state.

#include "control/core/record_view.h"
#include "control/reconciler/writer.h"
#include "model/actor_lifecycle.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

// How long a resume waits for room that a pause under pressure is making.
constexpr Duration kPressureWait = std::chrono::seconds(30);
// A place that is gone again and again is a fault that the caller has to see.
constexpr int kPlacesLostMax = 5;

Status NotFound(const std::string& key) {
  return Fail(reasons::kActorNotFound, "no actor " + key, {{"actor", key}});
}

Status Busy(const std::string& key, const torpor::v1::ActorRecord& record) {
  const torpor::v1::ActorOperation& operation = record.operation();
  std::string verb = VerbName(operation.verb());
  return Fail(reasons::kOperationInProgress,
              fmt::format("actor {} has a {} under way; try again", key, verb),
              {{"actor", key},
               {"verb", verb},
               {"op_id", operation.op_id()},
               {"started", FormatRfc3339(FromProto(operation.start_time()))}});
}

Status WrongState(const std::string& key, ateapi::ActorState state, torpor::v1::Verb verb) {
  return Fail(reasons::kWrongState,
              fmt::format("actor {} is {}; {} needs {}", key, StateName(state), VerbName(verb),
                          StatesThatAllow(verb)),
              {{"actor", key}, {"state", StateName(state)}, {"allowed", StatesThatAllow(verb)}});
}

Status CrashedError(const std::string& key, const ateapi::ActorStatus& status) {
  const ateapi::ActorCrash& crash = status.crash();
  return Fail(reasons::kActorCrashed,
              fmt::format("actor {} crashed ({}): {}; revert brings it back", key, crash.reason(),
                          crash.message()),
              {{"actor", key},
               {"crash_reason", crash.reason()},
               {"durable_generation", fmt::to_string(crash.durable_generation())}});
}

}  // namespace

void Writer::StartVerbCall(VerbCall call, const CallContext& context, Done<VerbOutcome> done) {
  auto waiter = std::make_shared<Waiter>();
  waiter->call = std::move(call);
  waiter->call.traceparent = context.traceparent;
  waiter->done = std::move(done);
  waiter->asked = parts_.clock->WallNow();
  waiter->deadline = AnswerBy(context, waiter->asked);
  inbox_->Post([this, waiter](Txn& txn) { AddWaiter(txn, waiter); });
}

WallTime Writer::AnswerBy(const CallContext& context, WallTime asked) const {
  Duration left = settings_.wait_max;
  MonotonicTime now = parts_.clock->Now();
  if (context.deadline < now + left) {
    left = std::max<Duration>(Duration::zero(), context.deadline - now);
  }
  return core::Later(asked, left);
}

Status Writer::Refusal(VerbAnswer answer, const std::string& key,
                       const torpor::v1::ActorRecord& record, torpor::v1::Verb verb) {
  if (answer == VerbAnswer::kCrashed) return CrashedError(key, record.actor().status());
  if (answer == VerbAnswer::kNo) return WrongState(key, record.actor().status().state(), verb);
  return Busy(key, record);
}

Writer::Waiter::~Waiter() {
  Answer(Fail(reasons::kShuttingDown, "the control plane is stopping; its operations go on"));
}

void Writer::Waiter::Answer(StatusOr<VerbOutcome> outcome) {
  Done<VerbOutcome> call = std::exchange(done, nullptr);
  if (call) call(std::move(outcome));
}

void Writer::AddWaiter(Txn& txn, std::shared_ptr<Waiter> waiter) {
  waiter->id = next_waiter_++;
  const std::string& key = waiter->call.actor_key;
  if (waiters_.size() >= settings_.waiting_max ||
      waiters_of_[key].size() >= settings_.waiting_per_actor_max) {
    Done<VerbOutcome> done = std::move(waiter->done);
    txn.AfterCommit(
        [done, key] { done(Fail(reasons::kRateLimited, "too many calls wait for actor " + key)); });
    return;
  }
  waiters_[waiter->id] = waiter;
  waiters_of_[key].insert(waiter->id);
  timers_.Set(fmt::format("w/{}", waiter->id), waiter->deadline);
  Ask(txn, waiter);
}

void Writer::Ask(Txn& txn, const std::shared_ptr<Waiter>& waiter) {
  const VerbCall& call = waiter->call;
  auto record = txn.Get<torpor::v1::ActorRecord>(call.actor_key);
  if (!call.states.empty()) return AskWaitActor(txn, waiter, record.get());
  if (record == nullptr) return Answer(txn, waiter, NotFound(call.actor_key));
  if (!waiter->checked) {
    waiter->checked = true;
    Status status = core::CheckOptions(call.options, record->actor().metadata());
    if (!status.ok()) return Answer(txn, waiter, status);
  }
  const ateapi::ActorState state = record->actor().status().state();
  const VerbAnswer answer =
      AnswerVerb(state, call.verb, call.any_state, core::IsUploading(*record));
  switch (answer) {
    case VerbAnswer::kStart:
      return StartFor(txn, waiter, *record);
    case VerbAnswer::kOk: {
      VerbOutcome outcome;
      outcome.actor = record->actor();
      return Answer(txn, waiter, std::move(outcome));
    }
    case VerbAnswer::kJoin:
      waiter->op_id = record->operation().op_id();
      return;
    case VerbAnswer::kWait:
      return;  // asked again when the actor changes
    case VerbAnswer::kBusy:
    case VerbAnswer::kNo:
    case VerbAnswer::kCrashed:
      return Answer(txn, waiter, Refusal(answer, call.actor_key, *record, call.verb));
  }
}

void Writer::AskWaitActor(Txn& txn, const std::shared_ptr<Waiter>& waiter,
                          const torpor::v1::ActorRecord* record) {
  const VerbCall& call = waiter->call;
  if (record == nullptr) return Answer(txn, waiter, NotFound(call.actor_key));
  const ateapi::ActorStatus& status = record->actor().status();
  if (call.states.count(status.state()) != 0) {
    VerbOutcome outcome;
    outcome.actor = record->actor();
    return Answer(txn, waiter, std::move(outcome));
  }
  if (status.state() == ateapi::ACTOR_STATE_CRASHED) {
    Answer(txn, waiter, CrashedError(call.actor_key, status));
  }
}

void Writer::StartFor(Txn& txn, const std::shared_ptr<Waiter>& waiter,
                      const torpor::v1::ActorRecord& record) {
  const VerbCall& call = waiter->call;
  std::string trigger = record.golden() ? "golden" : "api";
  core::StartVerb start{call.verb,        trigger,       call.fidelity,  call.any_state,
                        call.traceparent, waiter->asked, waiter->refused};
  start.generation = call.generation;
  Status status = StepActor(txn, call.actor_key, start, waiter.get());
  if (status.ok()) {
    waiter->refused = {};
    waiter->pressed = {};
    return;
  }
  AddMetadata(status, "actor", call.actor_key);
  if (ReasonOf(status) != reasons::kNoCapacity.name) return Answer(txn, waiter, status);
  WaitForCapacity(txn, waiter, status);
}

void Writer::WaitForCapacity(Txn& txn, const std::shared_ptr<Waiter>& waiter,
                             const Status& refusal) {
  if (waiter->refused == WallTime{}) waiter->refused = txn.now();
  const bool pressed = waiter->pressed != WallTime{};
  if (waiter->full_only && !pressed && settings_.pause_under_pressure && MakeRoom(txn)) {
    waiter->pressed = txn.now();
  }
  // Each cause has its own patience, and it ends when nothing is about to change.
  WallTime until = core::Later(waiter->refused, waiter->call.wait_for_capacity);
  if (waiter->awaited) {
    until = std::max(until, core::Later(waiter->refused, settings_.registration_wait));
  }
  if (waiter->pressed != WallTime{}) {
    until = std::max(until, core::Later(waiter->pressed, kPressureWait));
  }
  if (until <= txn.now()) return Answer(txn, waiter, refusal);
  waiter->capacity_until = until;
  timers_.Set(fmt::format("w/{}", waiter->id), std::min(waiter->deadline, until));
  waiter->no_capacity = refusal;
  waiter->for_capacity = true;
  capacity_waiters_.insert(waiter->id);
}

// Pauses the actor that was idle longest, if one was for long enough.
bool Writer::MakeRoom(Txn& txn) {
  std::string best;
  WallTime oldest = core::Later(txn.now(), -settings_.pressure_idle_min);
  for (const auto& [key, record] : txn.All<torpor::v1::ActorRecord>()) {
    const ateapi::ActorStatus& status = record->actor().status();
    if (status.state() != ateapi::ACTOR_STATE_RUNNING || record->has_operation() ||
        record->golden()) {
      continue;
    }
    core::Activity activity = ActivityOf(record->actor().metadata().uid());
    if (activity.open_streams > 0 || activity.unknown) continue;
    if (status.has_awake_until() && FromProto(status.awake_until()) > txn.now()) continue;
    WallTime last = core::LastActive(*record, activity);
    if (last > oldest) continue;
    oldest = last;
    best = key;
  }
  if (best.empty()) return false;
  core::StartVerb start;
  start.verb = torpor::v1::VERB_PAUSE;
  start.trigger = "pressure";
  start.stamp = oldest;
  return StepActor(txn, best, start).ok();
}

void Writer::Answer(Txn& txn, const std::shared_ptr<Waiter>& waiter,
                    StatusOr<VerbOutcome> outcome) {
  if (waiters_.erase(waiter->id) == 0) return;
  auto of = waiters_of_.find(waiter->call.actor_key);
  if (of != waiters_of_.end()) {
    of->second.erase(waiter->id);
    if (of->second.empty()) waiters_of_.erase(of);
  }
  capacity_waiters_.erase(waiter->id);
  timers_.Cancel(fmt::format("w/{}", waiter->id));
  auto shared = std::make_shared<StatusOr<VerbOutcome>>(std::move(outcome));
  txn.AfterCommit([waiter, shared] { waiter->Answer(std::move(*shared)); });
}

void Writer::AnswerJoined(Txn& txn, const std::string& key, const core::Ended& ended) {
  auto of = waiters_of_.find(key);
  if (of == waiters_of_.end()) return;
  for (uint64_t id : std::set<uint64_t>(of->second)) {
    auto it = waiters_.find(id);
    if (it == waiters_.end() || it->second->op_id != ended.op_id) continue;
    std::shared_ptr<Waiter> waiter = it->second;
    if (ended.place_again && ++waiter->places_lost <= kPlacesLostMax) {
      waiter->op_id.clear();  // asked again as the actor has changed
      continue;
    }
    if (!ended.status.ok()) {
      Status status = ended.status;
      AddMetadata(status, "actor", key);
      AddMetadata(status, "op_id", ended.op_id);
      Answer(txn, waiter, status);
      continue;
    }
    VerbOutcome outcome;
    outcome.actor = ended.actor;
    outcome.started = true;
    outcome.op_id = ended.op_id;
    outcome.lost_generations = ended.lost_generations;
    Answer(txn, waiter, std::move(outcome));
  }
}

void Writer::ExpireWaiter(Txn& txn, uint64_t id) {
  auto it = waiters_.find(id);
  if (it == waiters_.end()) return;
  std::shared_ptr<Waiter> waiter = it->second;
  if (waiter->for_capacity && waiter->capacity_until < waiter->deadline) {
    return Answer(txn, waiter, waiter->no_capacity);
  }
  const std::string& key = waiter->call.actor_key;
  Status status =
      Fail(reasons::kDeadlineExceeded,
           "the time of the call is over; what it began goes on, ask GetActor", {{"actor", key}});
  if (!waiter->op_id.empty()) AddMetadata(status, "op_id", waiter->op_id);
  auto record = txn.Get<torpor::v1::ActorRecord>(key);
  if (record != nullptr && record->operation().op_id() == waiter->op_id &&
      record->operation().has_last_error()) {
    AddMetadata(status, "cause", record->operation().last_error().reason());
    AddMetadata(status, "cause_message", record->operation().last_error().message());
  }
  Answer(txn, waiter, status);
}

}  // namespace torpor::control
