// What nodes report: registration, leases, outcomes, exits, activity.

#include <algorithm>

#include "base/log.h"
#include "control/core/record_view.h"
#include "control/reconciler/writer.h"
#include "control/resources.h"
#include "model/actor_lifecycle.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

constexpr Duration kAskTimeout = std::chrono::seconds(2);

// The public form of what a worker reports.
void FillWorker(const torpor::v1::WorkerInfo& info, const std::string& node_name,
                ateapi::Worker& worker) {
  worker.mutable_metadata()->set_name(info.worker_uid());
  if (worker.metadata().uid().empty()) worker.mutable_metadata()->set_uid(info.worker_uid());
  worker.set_worker_namespace(info.kubernetes_namespace().empty() ? "torpor"
                                                                  : info.kubernetes_namespace());
  worker.set_worker_pool(info.pool().empty() ? "default" : info.pool());
  worker.set_worker_pod(info.name());
  worker.set_worker_pod_uid(info.worker_uid());
  worker.set_node_name(node_name);
  *worker.mutable_ips() = info.ips();
  worker.set_sandbox_class(info.sandbox_class() == ateapi::SANDBOX_CLASS_MICROVM ? "microvm"
                                                                                 : "gvisor");
  *worker.mutable_labels() = info.labels();
  worker.set_epoch(info.epoch());
  ateapi::WorkerStatus& status = *worker.mutable_status();
  if (status.state() == ateapi::WORKER_STATE_UNSPECIFIED) {
    status.set_state(ateapi::WORKER_STATE_ACTIVE);
  }
  *status.mutable_capacity() = info.capacity();
  status.set_observed_epoch(info.epoch());
  *status.mutable_hardware() = info.hardware();
}

// The local generations that the record places on `node` and that are not among `copies`, which
// are (actor uid, snapshot name).
core::LocalLost MissingCopies(const torpor::v1::ActorRecord& actor, const std::string& node,
                              const std::set<std::pair<std::string, std::string>>& copies) {
  core::LocalLost lost;
  for (const torpor::v1::GenerationRecord& generation : actor.generations()) {
    const auto* local = core::FindStorage(generation, torpor::v1::DURABILITY_LOCAL);
    if (core::IsComplete(local) && local->node_name() == node &&
        copies.count({actor.actor().metadata().uid(), local->snapshot_name()}) == 0) {
      lost.names.push_back(local->snapshot_name());
    }
  }
  return lost;
}

std::string Bytes(const google::protobuf::Message& message) {
  // Maps have no order of their own; a registry of a few entries is compared as text.
  return message.ShortDebugString();
}

}  // namespace

StatusOr<std::string> Writer::NodeOfLease(const std::string& lease_id) const {
  MutexLock lock(&state_.mu);
  for (const auto& [name, entry] : state_.table<torpor::v1::NodeRecord>()) {
    if (entry.value->lease_id() == lease_id && !lease_id.empty()) return name;
  }
  return Fail(reasons::kStaleLease, "no node has this lease; register again");
}

bool Writer::NodeAlive(const std::string& node_name) const {
  MutexLock lock(&mu_);
  auto it = leases_.find(node_name);
  return it != leases_.end() && parts_.clock->Now() < it->second.expires;
}

bool Writer::NodeReported(const std::string& node_name) const {
  MutexLock lock(&mu_);
  auto it = leases_.find(node_name);
  return it != leases_.end() && it->second.reported;
}

bool Writer::JustStarted() const {
  return parts_.clock->Now() < started_ + settings_.registration_wait;
}

std::optional<WallTime> Writer::LeaseExpiry(const std::string& node_name) const {
  MutexLock lock(&mu_);
  auto it = leases_.find(node_name);
  if (it == leases_.end()) return std::nullopt;
  return core::Later(parts_.clock->WallNow(), it->second.expires - parts_.clock->Now());
}

torpor::v1::DiskUsage Writer::NodeDisk(const std::string& node_name) const {
  MutexLock lock(&mu_);
  auto it = leases_.find(node_name);
  return it == leases_.end() ? torpor::v1::DiskUsage() : it->second.disk;
}

StatusOr<torpor::v1::RegisterNodeResponse> Writer::RegisterNode(
    Txn& txn, const torpor::v1::RegisterNodeRequest& request) {
  auto before = txn.Get<torpor::v1::NodeRecord>(request.node_name());
  const bool rebooted = before != nullptr && before->boot_id() != request.boot_id();
  torpor::v1::NodeRecord record;
  record.set_name(request.node_name());
  record.set_boot_id(request.boot_id());
  record.set_lease_id(parts_.ids->NewUuid());
  record.set_agent_address(request.agent_address());
  record.set_version(request.version());
  record.set_architecture(request.architecture());
  record.set_kernel(request.kernel());
  *record.mutable_labels() = request.labels();
  *record.mutable_register_time() = ToProto(txn.now());
  if (before != nullptr && before->drain() != torpor::v1::DrainNodeRequest::MODE_UNSPECIFIED) {
    record.set_drain(before->drain());
    record.set_drained(before->drained());
    *record.mutable_drain_time() = before->drain_time();
    timers_.Set("d/" + request.node_name(), txn.now());
  }

  torpor::v1::RegisterNodeResponse response;
  response.set_lease_id(record.lease_id());
  *response.mutable_lease_ttl() = ToProto(settings_.lease_ttl);
  *response.mutable_renew_every() = ToProto(settings_.lease_renew_every);
  txn.Put(request.node_name(), std::move(record));
  {
    MutexLock lock(&mu_);
    Lease& lease = leases_[request.node_name()];
    lease.expires = parts_.clock->Now() + settings_.lease_ttl + settings_.lease_slack;
    lease.reported = true;
  }
  AddNodeEvent(txn, request.node_name(), "NodeRegistered",
               rebooted ? "the machine was started anew" : "");

  CheckInventory(txn, request, rebooted, response);
  PutWorkers(txn, request.node_name(), {request.workers().begin(), request.workers().end()});
  // What could not be removed while it was away.
  for (const auto& [id, garbage] : txn.All<torpor::v1::GarbageRecord>()) {
    if (garbage->has_call() && garbage->call().node_name() == request.node_name()) {
      txn.AfterCommit([this, garbage_id = id] { RunGarbage(garbage_id); });
    }
  }
  capacity_changed_ = true;
  return response;
}

void Writer::AskNode(const std::string& node_name) {
  auto node = state_.Find<torpor::v1::NodeRecord>(node_name);
  if (node == nullptr || node->lease_id().empty()) return;
  ClientOf(node->agent_address())
      ->GetInventory(kAskTimeout,
                     [this, inbox = inbox_, node_name](StatusOr<torpor::v1::Inventory> inventory) {
                       if (!inventory.ok()) return;  // it will register, or renew
                       std::string lease = inventory->lease_id();
                       inbox->Post([this, node_name, lease](Txn& txn) {
                         auto now = txn.Get<torpor::v1::NodeRecord>(node_name);
                         if (lease.empty() || now == nullptr || now->lease_id() != lease) return;
                         capacity_changed_ = true;
                         MutexLock lock(&mu_);
                         if (auto it = leases_.find(node_name); it != leases_.end())
                           it->second.reported = true;
                       });
                     });
}

void Writer::EvictCaches(Txn& txn, const std::string& node_name) {
  std::vector<std::pair<WallTime, std::string>> candidates;
  for (const auto& [key, record] : txn.All<torpor::v1::ActorRecord>()) {
    if (!core::HasCache(*record, node_name)) continue;
    core::Activity activity = ActivityOf(record->actor().metadata().uid());
    candidates.emplace_back(core::LastActive(*record, activity), key);
  }
  std::sort(candidates.begin(), candidates.end());
  if (candidates.size() > settings_.evictions_max) candidates.resize(settings_.evictions_max);
  for (const auto& [last, key] : candidates) {
    Status status = StepActor(txn, key, core::CacheUnwanted{node_name});
    CHECK(status.ok());
  }
}

void Writer::PutWorkers(Txn& txn, const std::string& node_name,
                        const std::vector<torpor::v1::WorkerInfo>& workers) {
  std::map<std::string, int64_t> epochs;
  for (const torpor::v1::WorkerInfo& info : workers) {
    epochs[info.worker_uid()] = info.epoch();
    auto before = txn.Get<torpor::v1::WorkerRecord>(info.worker_uid());
    torpor::v1::WorkerRecord record;
    if (before != nullptr) record = *before;
    // Of a slot whose process has not connected yet the node knows no more than uid and epoch.
    const bool connected = info.sandbox_class() != ateapi::SANDBOX_CLASS_UNSPECIFIED;
    if (connected || before == nullptr) {
      *record.mutable_info() = info;
    } else {
      record.mutable_info()->set_epoch(info.epoch());
      record.mutable_info()->set_ready(false);
    }
    record.set_node_name(node_name);
    FillWorker(record.info(), node_name, *record.mutable_worker());
    if (before == nullptr || Bytes(*before) != Bytes(record)) {
      txn.Put(info.worker_uid(), std::move(record));
      capacity_changed_ = true;
    }
  }
  // A worker that is not listed has not connected yet, or is gone: nothing is placed on it, and it
  // is forgotten when nothing is bound to it.
  for (const auto& [uid, before] : txn.All<torpor::v1::WorkerRecord>()) {
    if (before->node_name() != node_name || epochs.count(uid) != 0) continue;
    if (txn.Allocated(uid).actors == 0) {
      txn.Remove<torpor::v1::WorkerRecord>(uid);
    } else if (before->info().ready()) {
      torpor::v1::WorkerRecord record = *before;
      record.mutable_info()->set_ready(false);
      txn.Put(uid, std::move(record));
    }
  }
  for (const auto& [key, actor] : txn.All<torpor::v1::ActorRecord>()) {
    if (!actor->has_binding()) continue;
    auto epoch = epochs.find(actor->binding().worker_uid());
    if (epoch == epochs.end() || epoch->second <= actor->binding().worker_epoch()) continue;
    Status status = StepActor(
        txn, key,
        core::HostLost{reasons::kWorkerRestarted.name, "its worker was started anew", false});
    CHECK(status.ok());
  }
}

// Compares what the node has with what it should have.
void Writer::CheckInventory(Txn& txn, const torpor::v1::RegisterNodeRequest& request, bool rebooted,
                            torpor::v1::RegisterNodeResponse& response) {
  const std::string& node = request.node_name();
  std::map<std::string, torpor::v1::Resident> residents;
  std::set<std::pair<std::string, std::string>> copies;
  for (const auto& resident : request.inventory().residents()) {
    residents[resident.actor_uid()] = resident;
  }
  for (const auto& copy : request.inventory().local_copies()) {
    copies.insert({copy.actor_uid(), copy.snapshot_name()});
  }
  // What the node has seen; after a power cut the store may be behind it.
  std::map<std::string, int64_t> highest;
  auto saw = [&](const std::string& uid, int64_t generation) {
    highest[uid] = std::max(highest[uid], generation);
  };
  for (const auto& resident : request.inventory().residents()) {
    saw(resident.actor_uid(), resident.generation());
  }
  for (const auto& copy : request.inventory().local_copies()) {
    saw(copy.actor_uid(), copy.generation());
  }
  std::set<std::string> started;  // op ids
  for (const auto& operation : request.inventory().operations()) {
    saw(operation.actor_uid(), operation.generation());
    if (operation.state() == torpor::v1::Operation::STATE_SUCCEEDED) {
      started.insert(operation.op_id());
    }
  }
  // Of a worker that has not connected yet the node cannot say what it holds.
  std::set<std::string> connected;
  for (const auto& worker : request.workers()) connected.insert(worker.worker_uid());
  std::set<std::string> at_home;
  for (const auto& [key, actor] : txn.All<torpor::v1::ActorRecord>()) {
    const std::string& uid = actor->actor().metadata().uid();
    if (auto it = highest.find(uid);
        it != highest.end() && it->second > actor->actor().status().generation()) {
      torpor::v1::ActorRecord record = *actor;
      record.mutable_actor()->mutable_status()->set_generation(it->second);
      txn.Put(key, std::move(record));
    }
    const bool bound = actor->has_binding() && actor->binding().node_name() == node;
    auto resident = residents.find(uid);
    if (bound || actor->operation().node_name() == node) at_home.insert(uid);
    // What a start under way has not made yet cannot be gone.
    const torpor::v1::NodeCall& call = actor->operation().call();
    const bool starting = call.has_start() && started.count(call.op_id()) == 0;
    const bool gone = resident == residents.end() && request.has_inventory() && !starting &&
                      connected.count(actor->binding().worker_uid()) != 0;
    if (bound && (rebooted || gone)) {
      core::HostLost lost{
          rebooted ? reasons::kNodeLost.name : reasons::kWorkerRestarted.name,
          rebooted ? "its machine was started anew" : "its sandbox is gone from node " + node,
          rebooted};
      Status status = StepActor(txn, key, lost);
      CHECK(status.ok());
    } else if (bound && resident != residents.end() && !resident->second.address().empty() &&
               actor->actor().status().state() == ateapi::ACTOR_STATE_RUNNING &&
               resident->second.address() !=
                   actor->actor().status().worker_assignment().address()) {
      torpor::v1::ActorRecord record = *txn.Get<torpor::v1::ActorRecord>(key);
      record.mutable_actor()->mutable_status()->mutable_worker_assignment()->set_address(
          resident->second.address());
      txn.Put(key, std::move(record));
    }
    core::LocalLost lost = MissingCopies(*actor, node, copies);
    if (request.has_inventory() && !lost.names.empty()) {
      Status status = StepActor(txn, key, lost);
      CHECK(status.ok());
    }
    // What is open on this node is asked now instead of at the next retry.
    auto now = txn.Get<torpor::v1::ActorRecord>(key);
    if (now != nullptr && now->has_operation() && now->operation().call().node_name() == node) {
      Status status = StepActor(txn, key, core::Recover{});
      CHECK(status.ok());
    }
  }
  for (const auto& [uid, resident] : residents) {
    if (at_home.count(uid) == 0) response.add_stop_actor_uids(uid);
  }
}

StatusOr<torpor::v1::RenewLeaseResponse> Writer::RenewLease(
    const torpor::v1::RenewLeaseRequest& request) {
  ASSIGN_OR_RETURN(std::string name, NodeOfLease(request.lease_id()));
  auto node = state_.Find<torpor::v1::NodeRecord>(name);
  if (node == nullptr || node->boot_id() != request.boot_id()) {
    return Fail(reasons::kStaleLease, "the machine was started anew; register again");
  }
  // While it was away its actors may have been reverted or deleted: registering tells it so.
  if (!NodeAlive(name)) {
    return Fail(reasons::kStaleLease, "the lease has run out; register again");
  }
  bool first = false;
  bool relieved = false;  // calls may wait for this
  {
    MutexLock lock(&mu_);
    Lease& lease = leases_[name];
    lease.expires = parts_.clock->Now() + settings_.lease_ttl + settings_.lease_slack;
    relieved = lease.disk.pressure() && request.has_disk() && !request.disk().pressure();
    if (request.has_disk()) lease.disk = request.disk();
    first = !lease.reported;
  }
  bool changed = first || relieved;
  for (const torpor::v1::WorkerInfo& info : request.workers()) {
    auto worker = state_.Find<torpor::v1::WorkerRecord>(info.worker_uid());
    changed |= worker == nullptr || Bytes(worker->info()) != Bytes(info);
  }
  if (changed) {
    std::vector<torpor::v1::WorkerInfo> workers(request.workers().begin(), request.workers().end());
    inbox_->Post([this, name, workers](Txn& txn) {
      if (!workers.empty()) PutWorkers(txn, name, workers);
      capacity_changed_ = true;
      MutexLock lock(&mu_);
      if (auto it = leases_.find(name); it != leases_.end()) it->second.reported = true;
    });
  }
  const double total = static_cast<double>(request.disk().total_bytes());
  const double used = static_cast<double>(request.disk().used_bytes());
  if (total > 0 && used > total * (1 - settings_.disk_free_min)) {
    inbox_->Post([this, name](Txn& txn) { EvictCaches(txn, name); });
  }
  torpor::v1::RenewLeaseResponse response;
  *response.mutable_lease_ttl() = ToProto(settings_.lease_ttl);
  response.set_draining(node->drain() != torpor::v1::DrainNodeRequest::MODE_UNSPECIFIED);
  return response;
}

Status Writer::ReportOperation(const torpor::v1::ReportOperationRequest& request) {
  Status lease = NodeOfLease(request.lease_id()).status();
  if (!lease.ok()) return lease;
  const torpor::v1::Operation& operation = request.operation();
  if (operation.state() == torpor::v1::Operation::STATE_RUNNING) return OkStatus();
  // The acknowledgement lets the node prune older generations: it comes after the commit.
  return CallAndWait([this, operation](Txn& txn) {
    OnCallAnswer(txn, "a/" + operation.actor_uid(),
                 core::CallAnswer{operation.op_id(), operation, false, false, {}, {}});
  });
}

Status Writer::ReportActor(Txn& txn, const torpor::v1::ReportActorRequest& request) {
  Status lease = NodeOfLease(request.lease_id()).status();
  if (!lease.ok()) return lease;
  if (request.has_exited()) {
    std::string key = state_.ActorKeyOf(request.exited().actor_uid());
    if (key.empty()) return OkStatus();
    return StepActor(txn, key, core::Exited{request.exited()});
  }
  return request.has_idle() ? Wish(txn, request.idle()) : Wish(txn, request.awake());
}

StatusOr<torpor::v1::ListNodeActorsResponse> Writer::ListNodeActors(const std::string& lease_id) {
  ASSIGN_OR_RETURN(std::string node, NodeOfLease(lease_id));
  torpor::v1::ListNodeActorsResponse response;
  MutexLock lock(&state_.mu);
  for (const auto& [key, entry] : state_.table<torpor::v1::ActorRecord>()) {
    const torpor::v1::ActorRecord& record = *entry.value;
    torpor::v1::NodeActor actor;
    for (const torpor::v1::GenerationRecord& generation : record.generations()) {
      const auto* local = core::FindStorage(generation, torpor::v1::DURABILITY_LOCAL);
      if (local != nullptr && local->node_name() == node) {
        actor.add_keep_snapshot_names(local->snapshot_name());
      }
    }
    bool here = !actor.keep_snapshot_names().empty() || record.last_node_name() == node ||
                record.binding().node_name() == node;
    if (!here) continue;
    actor.set_actor_uid(record.actor().metadata().uid());
    actor.set_generation(record.actor().status().generation());
    *response.add_actors() = std::move(actor);
  }
  return response;
}

scheduler::Amount Writer::Allocated(const std::string& worker_uid) const {
  MutexLock lock(&state_.mu);
  auto it = state_.allocated.find(worker_uid);
  return it == state_.allocated.end() ? scheduler::Amount() : it->second;
}

torpor::v1::Node Writer::RenderNode(const torpor::v1::NodeRecord& record) const {
  torpor::v1::Node node;
  node.set_name(record.name());
  node.set_state(!NodeAlive(record.name()) ? torpor::v1::Node::STATE_LOST
                 : record.drain() == torpor::v1::DrainNodeRequest::MODE_UNSPECIFIED
                     ? torpor::v1::Node::STATE_READY
                 : record.drained() ? torpor::v1::Node::STATE_DRAINED
                                    : torpor::v1::Node::STATE_DRAINING);
  node.set_drain(record.drain());
  if (record.has_drain_time()) *node.mutable_drain_start_time() = record.drain_time();
  if (auto expiry = LeaseExpiry(record.name())) {
    *node.mutable_lease_expire_time() = ToProto(*expiry);
  }
  node.set_boot_id(record.boot_id());
  node.set_version(record.version());
  node.set_architecture(record.architecture());
  node.set_kernel(record.kernel());
  *node.mutable_labels() = record.labels();
  *node.mutable_disk() = NodeDisk(record.name());
  scheduler::Amount capacity;
  scheduler::Amount allocated;
  MutexLock lock(&state_.mu);
  for (const auto& [uid, entry] : state_.table<torpor::v1::WorkerRecord>()) {
    if (entry.value->node_name() != record.name()) continue;
    node.add_worker_names(uid);
    scheduler::Amount one = core::Capacity(entry.value->info().capacity());
    capacity.memory_bytes += one.memory_bytes;
    capacity.cpu_milli += one.cpu_milli;
    capacity.actors += one.actors;
    if (auto it = state_.allocated.find(uid); it != state_.allocated.end()) {
      allocated.memory_bytes += it->second.memory_bytes;
      allocated.cpu_milli += it->second.cpu_milli;
      allocated.actors += it->second.actors;
    }
  }
  *node.mutable_capacity() = ToResources(capacity);
  *node.mutable_allocated() = ToResources(allocated);
  for (const auto& [key, entry] : state_.table<torpor::v1::ActorRecord>()) {
    const torpor::v1::ActorRecord& actor = *entry.value;
    if (actor.has_binding() && actor.binding().node_name() == record.name()) {
      node.set_running_actors(node.running_actors() + 1);
    }
    if (IsOnlyOn(actor, record.name())) node.set_only_here(node.only_here() + 1);
    for (const torpor::v1::GenerationRecord& generation : actor.generations()) {
      const auto* local = core::FindStorage(generation, torpor::v1::DURABILITY_LOCAL);
      if (core::IsComplete(local) && local->node_name() == record.name()) {
        node.set_local_snapshots(node.local_snapshots() + 1);
      }
    }
  }
  return node;
}

}  // namespace torpor::control
