// Events of actors: run the state machine, stage what follows.

#include "base/log.h"
#include "control/core/golden.h"
#include "control/core/record_view.h"
#include "control/reconciler/writer.h"
#include "model/actor_lifecycle.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

// An idle decision that could not be carried out is taken again after this.
constexpr Duration kIdleAgain = std::chrono::seconds(5);

std::string ReportKey(const std::string& uid, int64_t slot) {
  return fmt::format("{}/{:03}", uid, slot);
}

}  // namespace

scheduler::Decision TxnCluster::Place(const scheduler::Request& request,
                                      const torpor::v1::WorkerRecord** chosen) const {
  std::vector<scheduler::WorkerView> views;
  std::vector<std::shared_ptr<const torpor::v1::WorkerRecord>> records;
  for (const auto& [key, record] : txn_.All<torpor::v1::WorkerRecord>()) {
    const ateapi::Worker& worker = record->worker();
    scheduler::WorkerView& view = views.emplace_back();
    view.uid = key;
    view.name = worker.worker_pod();
    view.node_name = record->node_name();
    view.sandbox_class = record->info().sandbox_class();
    view.labels = {worker.labels().begin(), worker.labels().end()};
    view.ready = record->info().ready();
    auto node = txn_.Get<torpor::v1::NodeRecord>(record->node_name());
    const bool drained =
        node != nullptr && node->drain() != torpor::v1::DrainNodeRequest::MODE_UNSPECIFIED;
    view.draining = drained || worker.status().state() == ateapi::WORKER_STATE_DRAINING;
    view.disk_full = writer_.NodeDisk(record->node_name()).pressure();
    view.node_alive = writer_.NodeAlive(record->node_name());
    view.node_awaited = !writer_.NodeReported(record->node_name());
    if (record->info().has_cpu()) view.cpu = &record->info().cpu();
    view.capacity = core::Capacity(record->info().capacity());
    view.allocated = txn_.Allocated(key);
    records.push_back(record);
  }
  scheduler::Decision decision = scheduler::Place(views, request);
  decision.awaited |= views.empty() && writer_.JustStarted();
  if (decision.worker >= 0) chosen_ = records[static_cast<size_t>(decision.worker)];
  *chosen = decision.worker >= 0 ? chosen_.get() : nullptr;
  return decision;
}

bool TxnCluster::NodeAlive(const std::string& node_name) const {
  return writer_.NodeAlive(node_name);
}

std::shared_ptr<const torpor::v1::CpuRecord> TxnCluster::FindCpu(const std::string& id) const {
  return id.empty() ? nullptr : txn_.Get<torpor::v1::CpuRecord>(id);
}

Status Writer::StepActor(Txn& txn, const std::string& key, const core::Event& event,
                         Waiter* starter) {
  std::shared_ptr<const torpor::v1::ActorRecord> before = txn.Get<torpor::v1::ActorRecord>(key);
  if (before == nullptr) return Fail(reasons::kActorNotFound, "no actor " + key);
  torpor::v1::ActorRecord record = *before;
  auto tmpl = txn.Get<torpor::v1::TemplateRecord>(core::Key(record.actor().actor_template()));
  TxnCluster cluster(*this, txn);
  const WallTime last_active =
      core::LastActive(record, ActivityOf(record.actor().metadata().uid()));
  core::Context context{txn.now(), parts_.ids,   &settings_, tmpl.get(),
                        &cluster,  parts_.clock, last_active};
  core::Change change = core::Step(context, record, event);
  if (starter != nullptr) {
    starter->full_only = change.full_only;
    starter->awaited = change.awaited;
  }
  if (!change.status.ok()) return change.status;
  if (starter != nullptr) {
    starter->op_id =
        record.has_operation() ? record.operation().op_id() : change.ended.back().op_id;
  }
  Apply(txn, key, std::move(record), std::move(change));
  return OkStatus();
}

void Writer::Apply(Txn& txn, const std::string& key, torpor::v1::ActorRecord record,
                   core::Change change) {
  const std::string uid = record.actor().metadata().uid();
  auto before = txn.Get<torpor::v1::ActorRecord>(key);
  const bool borrowed = !change.removed && record.has_borrowed();
  for (const torpor::v1::OperationReport& report : change.reports) {
    StoreReport(txn, record, report);
  }
  if (change.removed) {
    for (int slot = 0; slot < settings_.reports_per_actor_max; ++slot) {
      txn.PutRaw(Kind::kReport, ReportKey(uid, slot), std::nullopt);
    }
    txn.Remove<torpor::v1::ActorRecord>(key);
    txn.AfterCommit([this, uid] { ForgetActivity(uid, /*removed=*/true); });
  } else if (change.dirty) {
    FoldActivity(record);
    auto stored = txn.Put(key, std::move(record));
    bool released = before->has_binding() && !stored->has_binding();
    capacity_changed_ |= released;
    if (released) txn.AfterCommit([this, uid] { ForgetActivity(uid, /*removed=*/false); });
    for (core::Ended& ended : change.ended) {
      if (ended.status.ok()) {
        *ended.actor.mutable_metadata() = stored->actor().metadata();
      }
    }
  }
  if (before->has_borrowed() && !borrowed) ReleaseTag(txn, before->borrowed());
  for (auto& [id, cpu] : change.cpus) {
    if (txn.Get<torpor::v1::CpuRecord>(id) != nullptr) continue;
    torpor::v1::CpuRecord row;
    *row.mutable_cpu() = std::move(cpu);
    txn.Put(id, std::move(row));
  }
  for (torpor::v1::Event& event : change.events) txn.AddEvent(std::move(event));
  for (torpor::v1::GarbageRecord& garbage : change.garbage) PutGarbage(txn, std::move(garbage));
  for (core::Send& send : change.sends) {
    txn.AfterCommit([this, owner = "a/" + uid, send = std::move(send)]() mutable {
      Dispatch(owner, std::move(send));
    });
  }
  for (const std::string& uri : change.delete_uris) {
    txn.AfterCommit([this, uid, uri] { DeleteObjects(uid, uri); });
  }
  for (const std::string& node : change.fenced_nodes) FenceNode(txn, node);
  for (const torpor::v1::Binding& worker : change.stale_workers) MarkStale(txn, worker);
  for (const core::Ended& ended : change.ended) AnswerJoined(txn, key, ended);
  for (const core::Told& told : change.told) {
    AnswerJoined(txn, key, core::Ended{told.op_id, {}, told.status, {}, {}, false});
  }
  if (change.dirty || change.removed) touched_.insert(key);
  ArmActor(txn, key);
}

void Writer::StoreReport(Txn& txn, const torpor::v1::ActorRecord& record,
                         const torpor::v1::OperationReport& report) {
  int64_t slot = record.report_count() % settings_.reports_per_actor_max;
  txn.PutRaw(Kind::kReport, ReportKey(record.actor().metadata().uid(), slot),
             report.SerializeAsString());
  if (parts_.on_ended == nullptr) return;
  txn.AfterCommit(
      [this, uid = record.actor().metadata().uid(), report] { parts_.on_ended(uid, report); });
}

void Writer::FenceNode(Txn& txn, const std::string& node_name) {
  auto before = txn.Get<torpor::v1::NodeRecord>(node_name);
  if (before == nullptr || before->lease_id().empty()) return;
  torpor::v1::NodeRecord record = *before;
  record.clear_lease_id();
  txn.Put(node_name, std::move(record));
  MutexLock lock(&mu_);
  leases_.erase(node_name);
}

void Writer::MarkStale(Txn& txn, const torpor::v1::Binding& worker) {
  auto before = txn.Get<torpor::v1::WorkerRecord>(worker.worker_uid());
  if (before == nullptr || !before->info().ready()) return;
  if (before->info().epoch() > worker.worker_epoch()) return;  // reported meanwhile
  torpor::v1::WorkerRecord record = *before;
  record.mutable_info()->set_ready(false);
  txn.Put(worker.worker_uid(), std::move(record));
}

ateapi::Actor Writer::Shown(const torpor::v1::ActorRecord& record) const {
  ateapi::Actor actor = record.actor();
  core::Activity activity = ActivityOf(actor.metadata().uid());
  if (activity.last_active != WallTime{}) {
    *actor.mutable_status()->mutable_last_active_time() =
        ToProto(core::LastActive(record, activity));
  }
  return actor;
}

void Writer::ActorUpdated(Txn& txn, const std::string& key) {
  touched_.insert(key);
  ArmActor(txn, key);
}

core::IdleDecision Writer::Idle(const Txn& txn, const torpor::v1::ActorRecord& record) const {
  auto tmpl = txn.Get<torpor::v1::TemplateRecord>(core::Key(record.actor().actor_template()));
  return core::DecideIdle(txn.now(), record, tmpl.get(),
                          ActivityOf(record.actor().metadata().uid()));
}

void Writer::ArmActor(Txn& txn, const std::string& key) {
  const std::string name = "a/" + key;
  auto record = txn.Get<torpor::v1::ActorRecord>(key);
  if (record == nullptr) return timers_.Cancel(name);
  core::IdleDecision idle = Idle(txn, *record);
  std::optional<WallTime> at = core::NextTick(*record);
  std::optional<WallTime> look =
      idle.verb != torpor::v1::VERB_UNSPECIFIED ? std::optional<WallTime>(txn.now()) : idle.next;
  if (look && (!at || *look < *at)) at = look;
  if (at) {
    timers_.Set(name, *at);
  } else {
    timers_.Cancel(name);
  }
}

void Writer::OnActorTimer(Txn& txn, const std::string& key) {
  auto record = txn.Get<torpor::v1::ActorRecord>(key);
  if (record == nullptr) return;
  std::optional<WallTime> tick = core::NextTick(*record);
  if (tick && *tick <= txn.now()) {
    Status status = StepActor(txn, key, core::Tick{});
    CHECK(status.ok());
    return;
  }
  // Before the decision: what comes after it moves the stamp.
  const WallTime stamp = core::LastActive(*record, ActivityOf(record->actor().metadata().uid()));
  core::IdleDecision idle = Idle(txn, *record);
  if (idle.verb == torpor::v1::VERB_UNSPECIFIED) return ArmActor(txn, key);
  core::StartVerb start;
  start.verb = idle.verb;
  start.trigger = "idle";
  start.stamp = stamp;
  Status status = StepActor(txn, key, start);
  if (!status.ok()) timers_.Set("a/" + key, core::Later(txn.now(), kIdleAgain));
}

}  // namespace torpor::control
