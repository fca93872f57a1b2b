#include "control/testing/fake_world.h"

#include "base/log.h"
#include "google/rpc/status.pb.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

Status Lost() { return Fail(reasons::kNodeUnreachable, "connection reset"); }

void AddPhase(torpor::v1::Operation& operation, const std::string& name,
              const std::string& component, double ms) {
  torpor::v1::Phase& phase = *operation.add_phases();
  phase.set_name(name);
  phase.set_component(component);
  phase.set_start_ms(1);
  phase.set_duration_ms(ms);
}

google::rpc::Status ToRpc(const Status& status) {
  google::rpc::Status rpc;
  CHECK(rpc.ParseFromString(SerializeStatus(status)));
  return rpc;
}

}  // namespace

class FakeWorld::Client : public NodeClient {
 public:
  explicit Client(FakeWorld* world) : world_(world) {}
  void StartActor(const torpor::v1::StartActorRequest& request, Duration,
                  OperationDone done) override {
    world_->Enqueue("StartActor", request, std::move(done),
                    [w = world_, request](auto& op) { return w->Start(request, op); });
  }
  void CaptureActor(const torpor::v1::CaptureActorRequest& request, Duration,
                    OperationDone done) override {
    world_->Enqueue("CaptureActor", request, std::move(done),
                    [w = world_, request](auto& op) { return w->Capture(request, op); });
  }
  void UploadSnapshot(const torpor::v1::UploadSnapshotRequest& request, Duration,
                      OperationDone done) override {
    world_->Enqueue("UploadSnapshot", request, std::move(done),
                    [w = world_, request](auto& op) { return w->Upload(request, op); });
  }
  void StopActor(const torpor::v1::StopActorRequest& request, Duration,
                 OperationDone done) override {
    world_->Enqueue("StopActor", request, std::move(done),
                    [w = world_, request](auto&) { return w->Stop(request); });
  }
  void DeleteLocalSnapshots(const torpor::v1::DeleteLocalSnapshotsRequest& request, Duration,
                            OperationDone done) override {
    world_->Enqueue("DeleteLocalSnapshots", request, std::move(done), [w = world_, request](auto&) {
      for (const std::string& name : request.snapshot_names()) {
        w->local_snapshots[request.op().actor_uid()].erase(name);
      }
      return OkStatus();
    });
  }
  void GetOperation(const torpor::v1::GetOperationRequest& request, Duration,
                    OperationDone done) override {
    FakeWorld* world = world_;
    auto shared = std::make_shared<OperationDone>(std::move(done));
    world_->queue_.push_back({"GetOperation",
                              [world, request, shared]() -> std::function<void()> {
                                auto it = world->journal_.find(request.op_id());
                                if (it == world->journal_.end()) {
                                  if (request.refuse_if_unknown())
                                    world->refused_.insert(request.op_id());
                                  return [shared] {
                                    (*shared)(Fail(reasons::kOperationNotFound, "not begun"));
                                  };
                                }
                                return [shared, operation = it->second] { (*shared)(operation); };
                              },
                              [shared] { (*shared)(Lost()); }});
  }
  void GetInventory(Duration, Done<torpor::v1::Inventory> done) override {
    auto shared = std::make_shared<Done<torpor::v1::Inventory>>(std::move(done));
    world_->queue_.push_back({"GetInventory",
                              [world = world_, shared]() -> std::function<void()> {
                                torpor::v1::Inventory inventory = world->Registration().inventory();
                                inventory.set_lease_id(world->lease_id);
                                return [shared, inventory] { (*shared)(inventory); };
                              },
                              [shared] { (*shared)(Lost()); }});
  }

 private:
  FakeWorld* const world_;
};

class FakeWorld::Admin : public SnapshotAdmin {
 public:
  explicit Admin(FakeWorld* world) : world_(world) {}
  void CopySnapshot(const torpor::v1::SnapshotRef& from, const std::string& to,
                    DoneStatus done) override {
    Enqueue("Copy", std::move(done), [w = world_, from, to]() -> Status {
      auto source = w->objects.find(from.uri());
      if (source == w->objects.end()) {
        w->problems.push_back("the source of a copy is gone: " + from.uri());
        return Fail(reasons::kFailedGetExternalObject, from.uri());
      }
      w->objects[to] = source->second;
      return OkStatus();
    });
  }
  void DeleteSnapshot(const std::string& uri, DoneStatus done) override {
    Enqueue("DeleteSnapshot", std::move(done), [w = world_, uri]() -> Status {
      w->objects.erase(uri);
      return OkStatus();
    });
  }

 private:
  void Enqueue(const std::string& method, DoneStatus done, std::function<Status()> work) {
    auto shared = std::make_shared<DoneStatus>(std::move(done));
    world_->queue_.push_back(
        {method,
         [w = world_, method, shared, work]() -> std::function<void()> {
           ++w->calls[method];
           Status status = w->TakeFailure(method);
           if (status.ok()) status = work();
           return [shared, status] { (*shared)(status); };
         },
         [shared] { (*shared)(Fail(reasons::kObjectStorageUnavailable, "connection reset")); }});
  }
  FakeWorld* const world_;
};

NodeClientFactory FakeWorld::clients() {
  return [this](const std::string&) { return std::make_shared<Client>(this); };
}

SnapshotAdmin* FakeWorld::admin() {
  if (admin_ == nullptr) admin_ = std::make_shared<Admin>(this);
  return admin_.get();
}

void FakeWorld::RunAt(size_t index, Fate fate) {
  Queued queued = std::move(queue_[index]);
  queue_.erase(queue_.begin() + static_cast<ptrdiff_t>(index));
  if (fate == Fate::kLoseRequest) return queued.lose();
  if (fate == Fate::kDelay) {
    queued.lose();
    queue_.push_back({queued.what,
                      [run = queued.run]() -> std::function<void()> {
                        run();  // nobody listens any more
                        return [] {};
                      },
                      [] {}});
    return;
  }
  std::function<void()> reply = queued.run();
  if (fate == Fate::kLoseReply) return queued.lose();
  if (fate == Fate::kHoldReply) {
    queue_.push_back({"reply", [reply] { return reply; }, queued.lose});
    return;
  }
  reply();
}

bool FakeWorld::RunAll() {
  bool any = !queue_.empty();
  while (!queue_.empty()) RunAt(0);
  return any;
}

void FakeWorld::FailNext(const std::string& method, Status status, int times) {
  failures_[method] = {std::move(status), times};
}

Status FakeWorld::TakeFailure(const std::string& method) {
  auto it = failures_.find(method);
  if (it == failures_.end() || it->second.second == 0) return OkStatus();
  --it->second.second;
  return it->second.first;
}

template <typename Request>
void FakeWorld::Enqueue(const std::string& method, const Request& request, OperationDone done,
                        std::function<Status(torpor::v1::Operation&)> work) {
  auto shared = std::make_shared<OperationDone>(std::move(done));
  Request body = request;
  body.mutable_op()->clear_node_lease_id();
  queue_.push_back({method,
                    [this, method, op = request.op(), body = body.ShortDebugString(), work,
                     shared]() -> std::function<void()> {
                      Status refused;
                      torpor::v1::Operation operation = Execute(method, op, body, work, refused);
                      if (!refused.ok()) return [shared, refused] { (*shared)(refused); };
                      return [shared, operation] { (*shared)(operation); };
                    },
                    [shared] { (*shared)(Lost()); }});
}

torpor::v1::Operation FakeWorld::Execute(const std::string& method, const torpor::v1::OpHeader& op,
                                         const std::string& body,
                                         const std::function<Status(torpor::v1::Operation&)>& work,
                                         Status& refused) {
  if (refused_.count(op.op_id()) != 0) {
    refused = Fail(reasons::kSuperseded, "refused before");
    return {};
  }
  auto known = journal_.find(op.op_id());
  if (known != journal_.end()) {
    if (bodies_[op.op_id()] != body) {
      problems.push_back(method + ": op id reused with another body: " + body + " was " +
                         bodies_[op.op_id()]);
    }
    return known->second;
  }
  int64_t& seen = highest[op.actor_uid()];
  if (op.generation() < seen) {
    refused = Fail(reasons::kStaleGeneration, "a newer generation was seen",
                   {{"highest", fmt::to_string(seen)}});
    return {};
  }
  seen = op.generation();
  ++calls[method];
  if (on_run) on_run(method);
  torpor::v1::Operation operation;
  operation.set_op_id(op.op_id());
  operation.set_method(method);
  operation.set_actor_uid(op.actor_uid());
  operation.set_generation(op.generation());
  Status status = TakeFailure(method);
  if (!status.ok() && method == "CaptureActor" && capture_kills) sandboxes.erase(op.actor_uid());
  if (status.ok()) status = work(operation);
  if (status.ok()) {
    operation.set_state(torpor::v1::Operation::STATE_SUCCEEDED);
  } else {
    operation.set_state(torpor::v1::Operation::STATE_FAILED);
    *operation.mutable_error() = ToRpc(status);
  }
  journal_[op.op_id()] = operation;
  bodies_[op.op_id()] = body;
  return operation;
}

StatusOr<int64_t> FakeWorld::Open(const std::string& uid,
                                  const torpor::v1::SnapshotSource& source) const {
  if (source.has_durable()) {
    auto it = objects.find(source.durable().uri());
    if (it != objects.end()) return it->second;
    return Fail(reasons::kFailedGetExternalObject, "no object " + source.durable().uri());
  }
  auto of = local_snapshots.find(uid);
  if (of != local_snapshots.end()) {
    auto it = of->second.find(source.local_name());
    if (it != of->second.end()) return it->second;
  }
  return Fail(reasons::kLocalSnapshotGone, "no local snapshot " + source.local_name());
}

Status FakeWorld::Start(const torpor::v1::StartActorRequest& request,
                        torpor::v1::Operation& operation) {
  const std::string& uid = request.op().actor_uid();
  if (request.worker_epoch() != worker_epoch) {
    return Fail(reasons::kWorkerRestarted, fmt::format("the worker is in epoch {}, not {}",
                                                       worker_epoch, request.worker_epoch()));
  }
  if (sandboxes.count(uid) != 0) problems.push_back("second sandbox of " + uid);
  Sandbox sandbox;
  sandbox.generation = request.op().generation();
  torpor::v1::StartResult& result = *operation.mutable_start();
  result.set_cold_boot(request.sources().empty());
  Status opened;
  for (const torpor::v1::SnapshotSource& source : request.sources()) {
    auto value = Open(uid, source);
    opened = value.status();
    if (!opened.ok()) continue;  // the next copy of the same generation
    sandbox.value = *value;
    result.set_source_generation(source.generation());
    result.set_fidelity(request.fidelity());
    result.set_source(source.has_durable() ? torpor::v1::DURABILITY_DURABLE
                                           : torpor::v1::DURABILITY_LOCAL);
    // As an agent that also takes the time of what its mover does.
    for (const char* component : {"mover", "node"}) {
      if (!source.has_durable()) break;
      AddPhase(operation, "fetch", component, 4);
    }
    break;
  }
  if (!opened.ok()) {
    problems.push_back(std::string(opened.message()));
    return opened;
  }
  sandboxes[uid] = sandbox;
  result.set_address("unix:/run/door.sock");
  AddPhase(operation, request.sources().empty() ? "boot" : "restore", "worker", 5);
  return OkStatus();
}

Status FakeWorld::Capture(const torpor::v1::CaptureActorRequest& request,
                          torpor::v1::Operation& operation) {
  const std::string& uid = request.op().actor_uid();
  auto it = sandboxes.find(uid);
  if (it == sandboxes.end()) return Fail(reasons::kActorNotFound, "no sandbox");
  local_snapshots[uid][request.snapshot_name()] = it->second.value;
  captured[uid][request.snapshot_name()] = it->second.value;
  sandboxes.erase(it);
  AddPhase(operation, "checkpoint", "worker", 5);
  torpor::v1::CaptureResult& result = *operation.mutable_capture();
  result.set_snapshot_name(request.snapshot_name());
  result.set_fidelity(request.fidelity());
  result.mutable_meta()->set_architecture("amd64");
  result.mutable_meta()->mutable_cpu_features()->Assign(cpu_features.begin(), cpu_features.end());
  auto* file = result.add_files();
  file->set_name("checkpoint.img");
  file->set_logical_bytes(2000);
  file->set_populated_bytes(1000);
  return OkStatus();
}

Status FakeWorld::Upload(const torpor::v1::UploadSnapshotRequest& request,
                         torpor::v1::Operation& operation) {
  auto& snapshots = local_snapshots[request.op().actor_uid()];
  auto it = snapshots.find(request.snapshot_name());
  if (it == snapshots.end()) {
    if (objects.count(request.uri()) == 0) {
      return Fail(reasons::kLocalSnapshotGone, "no local snapshot to upload");
    }
    operation.mutable_upload()->set_already_present(true);
  } else {
    objects[request.uri()] = it->second;
  }
  AddPhase(operation, "upload", "mover", 5);
  operation.mutable_upload()->set_manifest_sha256("sha-of-" + request.uri());
  operation.mutable_upload()->set_stored_bytes(500);
  operation.mutable_upload()->set_logical_bytes(2000);
  operation.mutable_upload()->set_fidelity(request.fidelity());
  return OkStatus();
}

Status FakeWorld::Stop(const torpor::v1::StopActorRequest& request) {
  const std::string& uid = request.op().actor_uid();
  sandboxes.erase(uid);
  if (request.delete_local_snapshots()) local_snapshots.erase(uid);
  return OkStatus();
}

void FakeWorld::EndCopies() {
  std::erase_if(queue_, [](const Queued& queued) { return queued.what == "Copy"; });
}

void FakeWorld::RestartWorker() {
  sandboxes.clear();
  ++worker_epoch;
}

void FakeWorld::Reboot() {
  while (!queue_.empty()) RunAt(0, Fate::kLoseRequest);
  refused_.clear();
  sandboxes.clear();
  journal_.clear();
  bodies_.clear();
  // The newest generation is remembered with what is left of the actor.
  std::erase_if(highest, [&](const auto& seen) {
    auto left = local_snapshots.find(seen.first);
    return left == local_snapshots.end() || left->second.empty();
  });
  boot_id += "+";
  ++worker_epoch;
}

torpor::v1::RegisterNodeRequest FakeWorld::Registration(int64_t memory_bytes) const {
  torpor::v1::RegisterNodeRequest request;
  request.set_node_name("node-1");
  request.set_boot_id(boot_id);
  request.set_agent_address("unix:/run/agent.sock");
  request.set_architecture("amd64");
  torpor::v1::WorkerInfo& worker = *request.add_workers();
  worker.set_worker_uid("11111111-1111-4111-8111-111111111111");
  worker.set_name("gvisor-0");
  worker.set_pool("default");
  worker.set_sandbox_class(ateapi::SANDBOX_CLASS_GVISOR);
  worker.set_epoch(worker_epoch);
  worker.set_ready(true);
  worker.mutable_capacity()->set_actors(100);
  if (!cpu_features.empty()) worker.mutable_cpu()->set_architecture("amd64");
  for (const std::string& name : cpu_features) worker.mutable_cpu()->add_names(name);
  auto* memory = worker.mutable_capacity()->mutable_resources()->add_limits();
  memory->set_name("memory");
  memory->set_quantity(fmt::to_string(memory_bytes));
  auto* cpu = worker.mutable_capacity()->mutable_resources()->add_limits();
  cpu->set_name("cpu");
  cpu->set_quantity("100");
  torpor::v1::Inventory& inventory = *request.mutable_inventory();
  inventory.set_node_name("node-1");
  inventory.set_boot_id(boot_id);
  for (const auto& [uid, sandbox] : sandboxes) {
    torpor::v1::Resident& resident = *inventory.add_residents();
    resident.set_actor_uid(uid);
    resident.set_generation(sandbox.generation);
    resident.set_worker_uid(worker.worker_uid());
    resident.set_address("unix:/run/door.sock");
  }
  for (const auto& [id, operation] : journal_) *inventory.add_operations() = operation;
  for (const auto& [uid, snapshots] : local_snapshots) {
    for (const auto& [name, value] : snapshots) {
      torpor::v1::LocalCopy& copy = *inventory.add_local_copies();
      copy.set_actor_uid(uid);
      copy.set_snapshot_name(name);
      if (auto seen = highest.find(uid); seen != highest.end()) {
        copy.set_generation(seen->second);
      }
    }
  }
  return request;
}

}  // namespace torpor::control
