// Both directions between apiserver and node agent over a real unix socket.

#include <gtest/gtest.h>

#include <filesystem>
#include <future>

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "control/control_plane.h"
#include "control/rpc/grpc_node_client.h"
#include "control/rpc/registry_service.h"
#include "control/snapshot_admin.h"
#include "control/store/memory/memory_store.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "rpc/unix_server.h"
#include "torpor/v1/node.grpc.pb.h"

namespace torpor::control {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;
using torpor::v1::Operation;

// An agent that answers with the name of the method; "hang" hangs until the call is cancelled.
class FakeAgent : public torpor::v1::NodeAgent::Service {
 public:
  template <typename Request>
  grpc::Status Answer(grpc::ServerContext* context, const char* method, const Request* request,
                      Operation* operation) {
    operation->set_method(method);
    operation->set_op_id(request->op().op_id());
    operation->set_state(Operation::STATE_FAILED);
    if (request->op().op_id() == "refuse") {
      return rpc::ToGrpc(
          Error(Code::kFailedPrecondition, "STALE_GENERATION", "too old", {{"highest", "7"}}));
    }
    if (request->op().op_id() != "hang") return grpc::Status::OK;
    hanging.set_value();
    while (!context->IsCancelled()) std::this_thread::yield();
    return grpc::Status::CANCELLED;
  }
  grpc::Status StartActor(grpc::ServerContext* c, const torpor::v1::StartActorRequest* r,
                          Operation* o) override {
    return Answer(c, "StartActor", r, o);
  }
  grpc::Status CaptureActor(grpc::ServerContext* c, const torpor::v1::CaptureActorRequest* r,
                            Operation* o) override {
    return Answer(c, "CaptureActor", r, o);
  }
  grpc::Status UploadSnapshot(grpc::ServerContext* c, const torpor::v1::UploadSnapshotRequest* r,
                              Operation* o) override {
    return Answer(c, "UploadSnapshot", r, o);
  }
  grpc::Status StopActor(grpc::ServerContext* c, const torpor::v1::StopActorRequest* r,
                         Operation* o) override {
    return Answer(c, "StopActor", r, o);
  }
  grpc::Status DeleteLocalSnapshots(grpc::ServerContext* c,
                                    const torpor::v1::DeleteLocalSnapshotsRequest* r,
                                    Operation* o) override {
    return Answer(c, "DeleteLocalSnapshots", r, o);
  }
  grpc::Status GetOperation(grpc::ServerContext*, const torpor::v1::GetOperationRequest* request,
                            Operation* operation) override {
    operation->set_method("GetOperation");
    operation->set_op_id(request->op_id());
    return grpc::Status::OK;
  }
  std::promise<void> hanging;
};

class NodeClientTest : public testing::Test {
 protected:
  NodeClientTest() {
    fs::create_directories(dir_);
    Serve();
  }
  ~NodeClientTest() override {
    client_.reset();
    server_.reset();
    fs::remove_all(dir_);
  }
  void Serve() {
    auto server = rpc::UnixServer::Start(dir_ / "agent.sock", {&agent_});
    EXPECT_OK(server);
    server_ = std::move(*server);
  }
  using Call = std::function<void(OperationDone)>;
  static StatusOr<Operation> Wait(const Call& call) {
    std::promise<StatusOr<Operation>> answer;
    call([&](StatusOr<Operation> result) { answer.set_value(std::move(result)); });
    return answer.get_future().get();
  }
  StatusOr<Operation> Start(const std::string& op_id, Duration timeout = seconds(10)) {
    torpor::v1::StartActorRequest request;
    request.mutable_op()->set_op_id(op_id);
    return Wait(
        [&](OperationDone done) { client_->StartActor(request, timeout, std::move(done)); });
  }

  const fs::path dir_ = "/tmp/control-rpc-" + RandomHex(8);
  FakeAgent agent_;
  std::unique_ptr<rpc::UnixServer> server_;
  std::shared_ptr<NodeClient> client_ =
      MakeGrpcNodeClient("unix:" + (dir_ / "agent.sock").string());
};

template <typename Request>
Request WithOp() {
  Request request;
  request.mutable_op()->set_op_id("x");
  return request;
}

TEST_F(NodeClientTest, EveryMethodReachesItsOwn) {
  torpor::v1::GetOperationRequest get;
  get.set_op_id("x");
  const std::pair<const char*, Call> calls[] = {
      {"StartActor",
       [&](auto d) {
         client_->StartActor(WithOp<torpor::v1::StartActorRequest>(), seconds(9), d);
       }},
      {"CaptureActor",
       [&](auto d) {
         client_->CaptureActor(WithOp<torpor::v1::CaptureActorRequest>(), seconds(9), d);
       }},
      {"UploadSnapshot",
       [&](auto d) {
         client_->UploadSnapshot(WithOp<torpor::v1::UploadSnapshotRequest>(), seconds(9), d);
       }},
      {"StopActor",
       [&](auto d) { client_->StopActor(WithOp<torpor::v1::StopActorRequest>(), seconds(9), d); }},
      {"DeleteLocalSnapshots",
       [&](auto d) {
         client_->DeleteLocalSnapshots(WithOp<torpor::v1::DeleteLocalSnapshotsRequest>(),
                                       seconds(9), d);
       }},
      {"GetOperation", [&](auto d) { client_->GetOperation(get, seconds(9), d); }},
  };
  for (const auto& [method, call] : calls) {
    ASSERT_OK_AND_ASSIGN(Operation operation, Wait(call));
    EXPECT_EQ(operation.method(), method);
    EXPECT_EQ(operation.op_id(), "x");
  }
}

TEST_F(NodeClientTest, ARefusalKeepsItsReason) {
  Status status = Start("refuse").status();
  EXPECT_THAT(status, HasReason(Code::kFailedPrecondition, "STALE_GENERATION"));
  EXPECT_EQ(MetadataOf(status)["highest"], "7");
}

TEST_F(NodeClientTest, AnAgentThatIsNotThereIsUnreachableUntilItIsBack) {
  server_.reset();
  EXPECT_THAT(Start("x"), HasReason(Code::kUnavailable, "NODE_UNREACHABLE"));
  Serve();
  const MonotonicTime until = Clock::Real()->Now() + seconds(20);
  auto answer = Start("x");
  while (!answer.ok() && Clock::Real()->Now() < until) answer = Start("x");
  EXPECT_OK(answer);
}

TEST_F(NodeClientTest, ASlowAgentIsADeadline) {
  EXPECT_THAT(Start("hang", milliseconds(50)), HasCode(Code::kDeadlineExceeded));
}

TEST_F(NodeClientTest, TheEndOfTheClientCancelsItsCalls) {
  torpor::v1::StartActorRequest request;
  request.mutable_op()->set_op_id("hang");
  std::promise<Status> answer;
  client_->StartActor(request, seconds(60),
                      [&](StatusOr<Operation> result) { answer.set_value(result.status()); });
  agent_.hanging.get_future().wait();
  client_.reset();
  auto future = answer.get_future();
  ASSERT_EQ(future.wait_for(seconds(0)), std::future_status::ready);  // reset waited for it
  EXPECT_THAT(future.get(), HasCode(Code::kCancelled));
}

// ---- What the apiserver serves ----

class NoStorage : public SnapshotAdmin {
 public:
  void CopySnapshot(const torpor::v1::SnapshotRef&, const std::string&, DoneStatus done) override {
    done(OkStatus());
  }
  void DeleteSnapshot(const std::string&, DoneStatus done) override { done(OkStatus()); }
};

TEST(RegistryServiceTest, NodesAndRoutersReachTheControlPlane) {
  const fs::path dir = "/tmp/control-rpc-" + RandomHex(8);
  fs::create_directories(dir);
  const std::string path = dir / "registry.sock";
  MemoryStore store;
  NoStorage storage;
  Settings settings;
  settings.default_storage_location = "file:///store";
  ASSERT_OK_AND_ASSIGN(auto control, ControlPlane::Create({.store = &store,
                                                           .snapshots = &storage,
                                                           .node_clients = MakeGrpcNodeClient,
                                                           .clock = Clock::Real(),
                                                           .ids = IdSource::Real()},
                                                          settings));
  auto services = RegistryServices(control.get());
  std::vector<grpc::Service*> served;
  for (const auto& service : services) served.push_back(service.get());
  ASSERT_OK_AND_ASSIGN(auto server, rpc::UnixServer::Start(path, served));
  auto channel = rpc::Connect("unix:" + path);
  auto registry = torpor::v1::NodeRegistry::NewStub(channel);

  torpor::v1::RegisterNodeRequest node;
  node.set_node_name("node-1");
  node.set_boot_id("22222222-2222-4222-8222-222222222222");
  node.set_agent_address("unix:/nowhere");
  torpor::v1::RegisterNodeResponse registered;
  grpc::ClientContext context1;
  ASSERT_OK(rpc::FromGrpc(registry->RegisterNode(&context1, node, &registered)));
  torpor::v1::ListNodeActorsRequest list;
  list.set_lease_id(registered.lease_id());
  torpor::v1::ListNodeActorsResponse actors;
  grpc::ClientContext context2;
  EXPECT_OK(rpc::FromGrpc(registry->ListNodeActors(&context2, list, &actors)));
  list.set_lease_id("another");
  grpc::ClientContext context3;
  EXPECT_THAT(rpc::FromGrpc(registry->ListNodeActors(&context3, list, &actors)),
              HasReason(Code::kFailedPrecondition, "STALE_LEASE"));

  auto router = torpor::v1::RouterSupport::NewStub(channel);
  torpor::v1::ReportActivityResponse activity;
  grpc::ClientContext context4;
  EXPECT_OK(rpc::FromGrpc(router->ReportActivity(&context4, {}, &activity)));
  server->Shutdown();
  fs::remove_all(dir);
}

}  // namespace
}  // namespace torpor::control
