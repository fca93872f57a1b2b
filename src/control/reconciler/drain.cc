// Draining a node: nothing new is placed on it, and what lives only there is brought to object
// storage.

#include "base/log.h"
#include "control/core/record_view.h"
#include "control/reconciler/writer.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

using torpor::v1::DrainNodeRequest;

constexpr Duration kLookEvery = std::chrono::seconds(1);
// Once drained, only what a cancelled placement might bring back is looked for.
constexpr Duration kLookAgain = std::chrono::seconds(5);
// A suspend that failed is tried again after this.
constexpr Duration kTryAgain = std::chrono::seconds(10);

bool FailedLately(const torpor::v1::ActorRecord& record, WallTime now) {
  const ateapi::ActorStatus& status = record.actor().status();
  return status.has_last_error() &&
         FromProto(status.last_error().time()) > core::Later(now, -kTryAgain);
}

}  // namespace

bool Writer::IsOnlyOn(const torpor::v1::ActorRecord& record, const std::string& node_name) {
  if (record.has_binding()) return record.binding().node_name() == node_name;
  const torpor::v1::GenerationRecord* current = core::Current(record);
  return current != nullptr && core::LocalNode(record) == node_name &&
         !core::IsComplete(core::FindStorage(*current, torpor::v1::DURABILITY_DURABLE));
}

void Writer::AddNodeEvent(Txn& txn, const std::string& node_name, const std::string& type,
                          const std::string& message) {
  torpor::v1::Event event;
  event.set_event_id(parts_.ids->NewUuid());
  *event.mutable_time() = ToProto(txn.now());
  event.set_severity(torpor::v1::Event::SEVERITY_INFO);
  event.set_type(type);
  event.set_node_name(node_name);
  event.set_message(message);
  txn.AddEvent(std::move(event));
}

Status Writer::DrainNode(Txn& txn, const DrainNodeRequest& request) {
  const std::string& name = request.name();
  auto before = txn.Get<torpor::v1::NodeRecord>(name);
  if (before == nullptr) return Fail(reasons::kNodeNotFound, "no node " + name, {{"node", name}});
  const DrainNodeRequest::Mode mode = request.cancel() ? DrainNodeRequest::MODE_UNSPECIFIED
                                      : request.mode() == DrainNodeRequest::MODE_UNSPECIFIED
                                          ? DrainNodeRequest::MODE_SUSPEND
                                          : request.mode();
  if (before->drain() == mode) return OkStatus();
  torpor::v1::NodeRecord record = *before;
  record.set_drain(mode);
  record.set_drained(false);
  if (request.cancel()) {
    record.clear_drain_time();
    AddNodeEvent(txn, name, "NodeUncordoned", "");
  } else {
    if (!record.has_drain_time()) *record.mutable_drain_time() = ToProto(txn.now());
    AddNodeEvent(txn, name, "NodeDraining",
                 mode == DrainNodeRequest::MODE_CORDON ? "no new actors are placed on it"
                                                       : "its actors are suspended");
  }
  txn.Put(name, std::move(record));
  capacity_changed_ = true;
  timers_.Set("d/" + name, txn.now());
  return OkStatus();
}

void Writer::ReconcileDrain(Txn& txn, const std::string& node_name) {
  auto node = txn.Get<torpor::v1::NodeRecord>(node_name);
  if (node == nullptr || node->drain() == DrainNodeRequest::MODE_UNSPECIFIED) return;
  bool left = false;
  for (const auto& [key, record] : txn.All<torpor::v1::ActorRecord>()) {
    if (!IsOnlyOn(*record, node_name)) continue;
    left = true;
    const ateapi::ActorState state = record->actor().status().state();
    const bool resting =
        state == ateapi::ACTOR_STATE_RUNNING || state == ateapi::ACTOR_STATE_PAUSED;
    if (node->drain() != DrainNodeRequest::MODE_SUSPEND || !resting || record->golden() ||
        FailedLately(*record, txn.now())) {
      continue;
    }
    core::StartVerb start;
    start.verb = torpor::v1::VERB_SUSPEND;
    start.trigger = "drain";
    Status status = StepActor(txn, key, start);
    if (!status.ok()) LogInfo("drain waits", {{"actor", key}, {"why", status.ToString()}});
  }
  if (left == node->drained()) {
    torpor::v1::NodeRecord record = *txn.Get<torpor::v1::NodeRecord>(node_name);
    record.set_drained(!left);
    if (!left) AddNodeEvent(txn, node_name, "NodeDrained", "nothing is only here any more");
    txn.Put(node_name, std::move(record));
  }
  timers_.Set("d/" + node_name, core::Later(txn.now(), left ? kLookEvery : kLookAgain));
}

}  // namespace torpor::control
