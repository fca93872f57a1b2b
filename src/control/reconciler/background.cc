// Effects and what comes back of them: calls to nodes, object storage, garbage, golden builds.

#include <algorithm>

#include "base/log.h"
#include "control/core/golden.h"
#include "control/core/node_call.h"
#include "control/core/record_view.h"
#include "control/reconciler/writer.h"
#include "control/snapshot_admin.h"
#include "model/actor_lifecycle.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

using core::GoldenAction;

// The reply of a call may take this much longer than the operation itself.
constexpr Duration kReplySlack = std::chrono::seconds(5);
constexpr Duration kQueryWait = std::chrono::seconds(30);
constexpr Duration kGarbageBackoffMax = std::chrono::minutes(5);
constexpr int kGoldenStepsMax = 8;  // in one transaction

void SendRequest(NodeClient& client, const torpor::v1::NodeCall& call, OperationDone done) {
  Duration timeout = FromProto(call.timeout()) + kReplySlack;
  switch (call.request_case()) {
    case torpor::v1::NodeCall::kStart:
      return client.StartActor(call.start(), timeout, std::move(done));
    case torpor::v1::NodeCall::kCapture:
      return client.CaptureActor(call.capture(), timeout, std::move(done));
    case torpor::v1::NodeCall::kUpload:
      return client.UploadSnapshot(call.upload(), timeout, std::move(done));
    case torpor::v1::NodeCall::kStop:
      return client.StopActor(call.stop(), timeout, std::move(done));
    case torpor::v1::NodeCall::kDeleteLocal:
      return client.DeleteLocalSnapshots(call.delete_local(), timeout, std::move(done));
    default:
      done(Fail(reasons::kInternal, "a call without a request"));
  }
}

}  // namespace

void NodeClient::GetInventory(Duration, Done<torpor::v1::Inventory> done) {
  done(Fail(reasons::kNotImplemented, "this client does not ask for inventories"));
}

std::shared_ptr<NodeClient> Writer::ClientOf(const std::string& address) {
  std::shared_ptr<NodeClient>& client = clients_[address];
  if (client == nullptr) client = parts_.node_clients(address);
  return client;
}

// False when a later event of the same transaction has already given the call up.
bool Writer::IsWanted(const std::string& owner, const std::string& op_id) const {
  if (owner[0] != 'a') return true;
  auto record = state_.Find<torpor::v1::ActorRecord>(state_.ActorKeyOf(owner.substr(2)));
  if (record == nullptr) return false;
  return record->operation().call().op_id() == op_id ||
         std::any_of(record->uploads().begin(), record->uploads().end(),
                     [&](const auto& upload) { return upload.call().op_id() == op_id; });
}

bool Writer::IsOvertaken(const std::string& owner, const core::Send& send) const {
  // Once it may have left, only the node can call it off.
  if (!send.call.has_capture() || send.query || send.call.queries() > 0) return false;
  auto record = state_.Find<torpor::v1::ActorRecord>(state_.ActorKeyOf(owner.substr(2)));
  return record != nullptr && record->operation().has_activity_stamp() &&
         IsUsedSince(*record, FromProto(record->operation().activity_stamp()));
}

// `owner` is "a/<actor uid>" or "g/<garbage id>".
void Writer::Dispatch(const std::string& owner, core::Send send) {
  const std::string op_id = send.call.op_id();
  if (!IsWanted(owner, op_id)) return;
  OperationDone done = [this, inbox = inbox_, clock = parts_.clock, owner, op_id,
                        query = send.query,
                        refused = send.refuse](StatusOr<torpor::v1::Operation> answer) {
    auto event = std::make_shared<core::CallAnswer>(
        core::CallAnswer{op_id, std::move(answer), query, refused, {}, clock->WallNow()});
    inbox->Post([this, owner, event](Txn& txn) {
      const std::string id = event->op_id;
      OnCallAnswer(txn, owner, std::move(*event));
      dispatched_.erase(id);
    });
  };
  if (owner[0] == 'a' && IsOvertaken(owner, send)) {
    done(Fail(reasons::kActorBusy, "the actor was used since it was found idle"));
    return;
  }
  auto node = state_.Find<torpor::v1::NodeRecord>(send.call.node_name());
  if (node == nullptr) {
    done(Fail(reasons::kNodeUnreachable,
              fmt::format("node {} is not registered", send.call.node_name())));
    return;
  }
  std::shared_ptr<NodeClient> client = ClientOf(node->agent_address());
  if (send.query) {
    torpor::v1::GetOperationRequest request;
    request.set_op_id(op_id);
    *request.mutable_wait() = ToProto(send.refuse ? Duration::zero() : kQueryWait);
    request.set_refuse_if_unknown(send.refuse);
    client->GetOperation(request, kQueryWait + kReplySlack, std::move(done));
    return;
  }
  if (owner[0] == 'a') dispatched_[op_id] = parts_.clock->WallNow();
  core::Header(send.call)->set_node_lease_id(node->lease_id());
  SendRequest(*client, send.call, std::move(done));
}

void Writer::OnCallAnswer(Txn& txn, const std::string& owner, core::CallAnswer answer) {
  const std::string id = owner.substr(2);
  if (owner[0] == 'a') {
    std::string key = state_.ActorKeyOf(id);
    if (key.empty()) return;  // deleted meanwhile
    auto sent = dispatched_.find(answer.op_id);
    if (sent != dispatched_.end()) answer.dispatched = sent->second;
    Status status = StepActor(txn, key, answer);
    // Removed earlier in this transaction.
    if (!status.ok()) LogInfo("late answer of a node", {{"actor", id}, {"op_id", answer.op_id}});
    return;
  }
  auto garbage = txn.Get<torpor::v1::GarbageRecord>(id);
  if (garbage == nullptr) return;
  const bool upload = garbage->has_upload();
  torpor::v1::NodeCall call = upload ? garbage->upload() : garbage->call();
  if (call.op_id() != answer.op_id) return;
  core::CallOutcome outcome =
      core::Resolve(call, answer.answer, answer.query, answer.refused, txn.now());
  if (upload && outcome.state != core::CallState::kOpen) {
    torpor::v1::GarbageRecord next = *garbage;
    next.clear_upload();
    txn.Put(id, std::move(next));
    txn.AfterCommit([this, id] { RunGarbage(id); });
    return;
  }
  Status status = outcome.error;
  if (outcome.state == core::CallState::kOpen) {
    status = answer.answer.ok() ? Fail(reasons::kOperationInProgress, "the node is still at it")
                                : answer.answer.status();
  }
  bool retry = outcome.state == core::CallState::kOpen ||
               (!status.ok() && core::Judge(status) == core::Verdict::kRetry);
  OnGarbageAnswer(txn, id, status, retry);
}

void Writer::DeleteObjects(const std::string& actor_uid, const std::string& uri) {
  DeleteSnapshot(uri, [this, actor_uid, uri](Txn& txn, const Status& status) {
    std::string key = state_.ActorKeyOf(actor_uid);
    if (key.empty()) return;
    Status stepped = StepActor(txn, key, core::ObjectDeleted{uri, status});
    if (!stepped.ok()) LogInfo("late answer of object storage", {{"actor", actor_uid}});
  });
}

void Writer::DeleteSnapshot(const std::string& uri, std::function<void(Txn&, const Status&)> done) {
  auto post = [inbox = inbox_, done = std::move(done)](Status status) {
    auto shared = std::make_shared<Status>(std::move(status));
    inbox->Post([done, shared](Txn& txn) { done(txn, *shared); });
  };
  // Whoever asked tries again later.
  if (IsBeingCopied(uri)) {
    return post(Fail(reasons::kOperationInProgress, "a tag is being copied from or to it"));
  }
  parts_.snapshots->DeleteSnapshot(uri, std::move(post));
}

// ---- Garbage ----

void Writer::PutGarbage(Txn& txn, torpor::v1::GarbageRecord garbage) {
  std::string id = garbage.id();
  txn.Put(id, std::move(garbage));
  txn.AfterCommit([this, id] { RunGarbage(id); });
}

void Writer::RunGarbage(const std::string& id) {
  auto garbage = state_.Find<torpor::v1::GarbageRecord>(id);
  if (garbage == nullptr) return;
  if (garbage->has_upload()) {
    return Dispatch("g/" + id, core::Send{garbage->upload(), /*query=*/true, /*refuse=*/true});
  }
  if (!garbage->uri().empty()) {
    DeleteSnapshot(garbage->uri(), [this, id](Txn& txn, const Status& status) {
      OnGarbageAnswer(txn, id, status, !status.ok());
    });
    return;
  }
  torpor::v1::NodeCall call = garbage->call();
  if (call.has_delete_local()) {
    // Deleting by name is safe at any time, so the fence is the actor's newest one.
    std::string key = state_.ActorKeyOf(core::Header(call)->actor_uid());
    auto actor = state_.Find<torpor::v1::ActorRecord>(key);
    if (actor != nullptr) {
      core::Header(call)->set_generation(actor->actor().status().generation());
    }
  }
  Dispatch("g/" + id, core::Send{std::move(call), false, false});
}

void Writer::OnGarbageAnswer(Txn& txn, const std::string& id, const Status& status, bool retry) {
  auto garbage = txn.Get<torpor::v1::GarbageRecord>(id);
  if (garbage == nullptr) return;
  if (!retry) {
    if (!status.ok()) LogWarning("garbage is given up", {{"error", status.ToString()}});
    return txn.Remove<torpor::v1::GarbageRecord>(id);
  }
  torpor::v1::GarbageRecord next = *garbage;
  WallTime at = core::Later(txn.now(), core::Backoff(next.attempts() + 2, kGarbageBackoffMax));
  next.set_attempts(next.attempts() + 1);
  *next.mutable_retry_time() = ToProto(at);
  // A new fence makes another request, which needs another op id.
  if (next.has_call()) core::Renew(*next.mutable_call(), parts_.ids->NewUuid(), txn.now());
  txn.Put(id, std::move(next));
  timers_.Set("g/" + id, at);
}

// ---- Golden builds ----

void Writer::ReconcileGolden(Txn& txn, const std::string& template_key) {
  for (int i = 0; i < kGoldenStepsMax; ++i) {
    auto before = txn.Get<torpor::v1::TemplateRecord>(template_key);
    if (before == nullptr || !core::IsGoldenOpen(*before)) {
      return timers_.Cancel("t/" + template_key);
    }
    torpor::v1::TemplateRecord record = *before;
    std::string key = core::Key(core::kGoldenAtespace, record.actor_template().metadata().uid());
    auto actor = txn.Get<torpor::v1::ActorRecord>(key);
    auto tag = txn.Get<torpor::v1::TagRecord>(key);
    core::GoldenDecision decision =
        core::DecideGolden(txn.now(), settings_, record, actor.get(), tag.get());
    if (decision.event) {
      decision.event->set_event_id(parts_.ids->NewUuid());
      txn.AddEvent(*decision.event);
    }
    if (decision.dirty) txn.Put(template_key, record);
    if (decision.next) {
      timers_.Set("t/" + template_key, *decision.next);
    } else {
      timers_.Cancel("t/" + template_key);
    }
    if (!ActGolden(txn, template_key, record, static_cast<int>(decision.action))) return;
  }
}

// True when something was done that lets the build go on at once.
bool Writer::ActGolden(Txn& txn, const std::string& template_key,
                       const torpor::v1::TemplateRecord& record, int action) {
  const ateapi::ResourceMetadata& metadata = record.actor_template().metadata();
  const std::string key = core::Key(core::kGoldenAtespace, metadata.uid());
  switch (static_cast<GoldenAction>(action)) {
    case GoldenAction::kNone:
      return false;
    case GoldenAction::kCreateActor: {
      torpor::v1::ActorRecord actor;
      actor.mutable_actor()->mutable_metadata()->set_atespace(core::kGoldenAtespace);
      actor.mutable_actor()->mutable_metadata()->set_name(metadata.uid());
      actor.mutable_actor()->mutable_metadata()->set_uid(parts_.ids->NewUuid());
      actor.mutable_actor()->mutable_actor_template()->set_atespace(metadata.atespace());
      actor.mutable_actor()->mutable_actor_template()->set_name(metadata.name());
      actor.mutable_actor()->mutable_status()->set_state(ateapi::ACTOR_STATE_SUSPENDED);
      actor.set_golden(true);
      txn.Put(key, std::move(actor));
      return true;
    }
    case GoldenAction::kResumeActor:
      return StartGoldenVerb(txn, template_key, torpor::v1::VERB_RESUME, {});
    case GoldenAction::kSuspendActor:
      return StartGoldenVerb(txn, template_key, torpor::v1::VERB_SUSPEND,
                             torpor::v1::FIDELITY_MEMORY);
    case GoldenAction::kCreateTag:
      CreateGoldenTag(txn, record);
      return true;
    case GoldenAction::kDeleteActor:
      return StepActor(txn, key, core::StartVerb{torpor::v1::VERB_DELETE, "golden", {}, true}).ok();
    case GoldenAction::kDeleteTag: {
      auto tag = txn.Get<torpor::v1::TagRecord>(key);
      RemoveTag(txn, *tag, Fail(reasons::kSuperseded, "the golden build was given up"));
      return true;
    }
  }
  return false;
}

bool Writer::StartGoldenVerb(Txn& txn, const std::string& template_key, torpor::v1::Verb verb,
                             torpor::v1::Fidelity fidelity) {
  torpor::v1::TemplateRecord record = *txn.Get<torpor::v1::TemplateRecord>(template_key);
  const std::string key =
      core::Key(core::kGoldenAtespace, record.actor_template().metadata().uid());
  Status status = StepActor(txn, key, core::StartVerb{verb, "golden", fidelity, false});
  if (status.ok()) {
    auto actor = txn.Get<torpor::v1::ActorRecord>(key);
    record.set_golden_op_id(actor->operation().op_id());
    record.clear_golden_retry_time();
  } else {
    core::GoldenFailed(txn.now(), record, status);
  }
  txn.Put(template_key, std::move(record));
  return !status.ok();  // then the build decides when to try again, or to give up
}

void Writer::CreateGoldenTag(Txn& txn, const torpor::v1::TemplateRecord& record) {
  const std::string& uid = record.actor_template().metadata().uid();
  auto actor = txn.Get<torpor::v1::ActorRecord>(core::Key(core::kGoldenAtespace, uid));
  ateapi::Tag tag;
  tag.mutable_metadata()->set_atespace(core::kGoldenAtespace);
  tag.mutable_metadata()->set_name(uid);
  tag.set_scope(ateapi::TAG_SCOPE_PUBLISHED);
  tag.mutable_source_actor()->set_atespace(core::kGoldenAtespace);
  tag.mutable_source_actor()->set_name(uid);
  PutTag(txn, std::move(tag), *actor, *core::DurableSnapshot(*actor), /*forked=*/false);
}

void Writer::GoldenTagEnded(Txn& txn, const std::string& template_uid, const Status& status) {
  const std::string template_key = state_.TemplateKeyOf(template_uid);
  auto tmpl = txn.Get<torpor::v1::TemplateRecord>(template_key);
  if (tmpl == nullptr) return;
  if (!status.ok()) {
    torpor::v1::TemplateRecord record = *tmpl;
    core::GoldenFailed(txn.now(), record, status);
    txn.Put(template_key, std::move(record));
  }
  ReconcileGolden(txn, template_key);
}

void Writer::RemoveGolden(Txn& txn, const std::string& template_uid) {
  const std::string key = core::Key(core::kGoldenAtespace, template_uid);
  auto actor = txn.Get<torpor::v1::ActorRecord>(key);
  if (actor != nullptr && actor->actor().status().state() != ateapi::ACTOR_STATE_DELETING) {
    Status status =
        StepActor(txn, key, core::StartVerb{torpor::v1::VERB_DELETE, "golden", {}, true});
    CHECK(status.ok());
  }
  auto tag = txn.Get<torpor::v1::TagRecord>(key);
  if (tag != nullptr) RemoveTag(txn, *tag, Fail(reasons::kSuperseded, "the template is gone"));
}

void Writer::TrimEvents() {
  WallTime before = core::Later(parts_.clock->WallNow(), -settings_.events_kept);
  Status status = parts_.store->TrimEvents(before, settings_.events_per_atespace_max);
  if (!status.ok()) LogWarning("events were not trimmed", {{"error", status.ToString()}});
}

}  // namespace torpor::control
