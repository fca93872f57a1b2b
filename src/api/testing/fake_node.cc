#include "api/testing/fake_node.h"

namespace torpor::api {

using torpor::v1::Operation;

class FakeNode::Client : public control::NodeClient {
 public:
  explicit Client(FakeNode* node) : node_(node) {}
  ~Client() override { node_->Forget(this); }

  void StartActor(const torpor::v1::StartActorRequest& request, Duration,
                  control::OperationDone done) override {
    Operation operation = Succeeded(request.op(), "StartActor");
    operation.mutable_start()->set_address("unix:/door");
    operation.mutable_start()->set_cold_boot(request.sources().empty());
    operation.mutable_start()->set_fidelity(request.fidelity());
    Answer(std::move(operation), std::move(done));
  }
  void CaptureActor(const torpor::v1::CaptureActorRequest& request, Duration,
                    control::OperationDone done) override {
    Operation operation = Succeeded(request.op(), "CaptureActor");
    torpor::v1::CaptureResult* capture = operation.mutable_capture();
    capture->set_snapshot_name(request.snapshot_name());
    capture->set_fidelity(request.fidelity());
    capture->mutable_meta()->set_generation(request.op().generation());
    capture->mutable_meta()->set_fidelity(request.fidelity());
    Answer(std::move(operation), std::move(done));
  }
  void UploadSnapshot(const torpor::v1::UploadSnapshotRequest& request, Duration,
                      control::OperationDone done) override {
    Operation operation = Succeeded(request.op(), "UploadSnapshot");
    operation.mutable_upload()->set_manifest_sha256(std::string(64, '0'));
    operation.mutable_upload()->set_fidelity(request.fidelity());
    operation.mutable_upload()->set_stored_bytes(1000);
    Answer(std::move(operation), std::move(done));
  }
  void StopActor(const torpor::v1::StopActorRequest& request, Duration,
                 control::OperationDone done) override {
    Answer(Succeeded(request.op(), "StopActor"), std::move(done));
  }
  void DeleteLocalSnapshots(const torpor::v1::DeleteLocalSnapshotsRequest& request, Duration,
                            control::OperationDone done) override {
    Answer(Succeeded(request.op(), "DeleteLocalSnapshots"), std::move(done));
  }
  // Nothing is ever asked twice: every operation was answered.
  void GetOperation(const torpor::v1::GetOperationRequest&, Duration,
                    control::OperationDone done) override {
    done(Error(Code::kNotFound, "OPERATION_NOT_FOUND", "no such operation"));
  }

 private:
  static Operation Succeeded(const torpor::v1::OpHeader& op, const char* method) {
    Operation operation;
    operation.set_op_id(op.op_id());
    operation.set_method(method);
    operation.set_actor_uid(op.actor_uid());
    operation.set_generation(op.generation());
    operation.set_state(Operation::STATE_SUCCEEDED);
    return operation;
  }
  void Answer(Operation operation, control::OperationDone done) {
    node_->Answer(this, std::move(operation), std::move(done));
  }

  FakeNode* const node_;
};

void FakeNode::Hold() {
  MutexLock lock(&mu_);
  holding_ = true;
}

void FakeNode::Release() {
  std::vector<Held> held;
  {
    MutexLock lock(&mu_);
    holding_ = false;
    held.swap(held_);
  }
  for (Held& call : held) call.done(std::move(call.operation));
}

void FakeNode::Forget(const Client* client) {
  std::vector<control::OperationDone> cancelled;
  {
    MutexLock lock(&mu_);
    for (Held& call : held_) {
      if (call.client == client) cancelled.push_back(std::move(call.done));
    }
    std::erase_if(held_, [client](const Held& call) { return call.client == client; });
  }
  for (const auto& done : cancelled) done(Error(Code::kCancelled, "CANCELLED", "client ended"));
}

void FakeNode::Answer(const Client* client, Operation operation, control::OperationDone done) {
  {
    MutexLock lock(&mu_);
    if (holding_) {
      held_.push_back({client, std::move(operation), std::move(done)});
      return;
    }
  }
  done(std::move(operation));
}

control::NodeClientFactory FakeNode::Factory() {
  return [this](const std::string&) { return std::make_shared<Client>(this); };
}

torpor::v1::RegisterNodeRequest FakeNode::Registration() {
  torpor::v1::RegisterNodeRequest request;
  request.set_node_name(kFakeNode);
  request.set_boot_id("22222222-2222-4222-8222-222222222222");
  request.set_agent_address("unix:/agent");
  request.set_architecture("x86_64");
  request.mutable_inventory()->set_node_name(kFakeNode);
  torpor::v1::WorkerInfo* worker = request.add_workers();
  worker->set_worker_uid(kFakeWorkerUid);
  worker->set_name("gvisor-0");
  worker->set_pool("default");
  worker->set_sandbox_class(ateapi::SANDBOX_CLASS_GVISOR);
  worker->add_ips("127.0.0.1");
  worker->set_epoch(1);
  worker->set_ready(true);
  worker->add_fidelities(torpor::v1::FIDELITY_VOLUMES);
  worker->add_fidelities(torpor::v1::FIDELITY_MEMORY);
  (*worker->mutable_hardware()->mutable_attributes())["architecture"] = "x86_64";
  worker->mutable_capacity()->set_actors(8);
  for (const auto& [name, quantity] : {std::pair("memory", "8Gi"), std::pair("cpu", "8")}) {
    ateapi::Limits* limit = worker->mutable_capacity()->mutable_resources()->add_limits();
    limit->set_name(name);
    limit->set_quantity(quantity);
  }
  return request;
}

}  // namespace torpor::api
