// The agent over real sockets: NodeAgent and Ops.ReadLogs on agent.sock, WorkerSupport on its own.

#include <gtest/gtest.h>

#include "agent/log_reader.h"
#include "agent/rpc/clients.h"
#include "agent/rpc/services.h"
#include "agent/testing/test_node.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "rpc/unix_server.h"
#include "torpor/v1/node.grpc.pb.h"
#include "torpor/v1/ops.grpc.pb.h"
#include "torpor/v1/worker.grpc.pb.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;

class AgentRpcTest : public testing::Test {
 protected:
  void SetUp() override {
    for (auto& service : NodeServices(&node_.agent(), &logs_)) {
      services_.push_back(std::move(service));
    }
    services_.push_back(SupportService(&node_.agent(), "gvisor-0"));
    std::vector<grpc::Service*> control = {services_[0].get(), services_[1].get()};
    ASSERT_OK_AND_ASSIGN(agent_server_, rpc::UnixServer::Start(Socket("agent.sock"), control));
    ASSERT_OK_AND_ASSIGN(support_server_, rpc::UnixServer::Start(Socket("support-gvisor-0.sock"),
                                                                 {services_[2].get()}));
    auto channel = rpc::Connect("unix:" + Socket("agent.sock"));
    agent_ = torpor::v1::NodeAgent::NewStub(channel);
    ops_ = torpor::v1::Ops::NewStub(channel);
    support_ =
        torpor::v1::WorkerSupport::NewStub(rpc::Connect("unix:" + Socket("support-gvisor-0.sock")));
  }
  std::string Socket(const std::string& name) { return node_.path() + "/run/" + name; }

  TestNode node_;
  LogReader logs_{&node_.dirs()};
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<rpc::UnixServer> agent_server_;
  std::unique_ptr<rpc::UnixServer> support_server_;
  std::unique_ptr<torpor::v1::NodeAgent::Stub> agent_;
  std::unique_ptr<torpor::v1::Ops::Stub> ops_;
  std::unique_ptr<torpor::v1::WorkerSupport::Stub> support_;
};

template <typename Stub, typename Request, typename Response>
Status Call(Stub& stub,
            grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
            const Request& request, Response* response) {
  grpc::ClientContext context;
  rpc::SetDeadline(&context, std::chrono::seconds(20));
  return rpc::FromGrpc((stub.*method)(&context, request, response));
}

TEST_F(AgentRpcTest, ThinPath) {
  using Stub = torpor::v1::NodeAgent::Stub;
  Operation operation;
  ASSERT_OK(Call(*agent_, &Stub::StartActor, node_.StartRequest(1), &operation));
  EXPECT_EQ(operation.state(), Operation::STATE_SUCCEEDED);
  ASSERT_OK(Call(*agent_, &Stub::CaptureActor, node_.CaptureRequest(2, "s2"), &operation));
  ASSERT_OK(Call(*agent_, &Stub::UploadSnapshot, node_.UploadRequest(2, "s2", "file:///x/s2"),
                 &operation));
  EXPECT_EQ(operation.upload().manifest_sha256(), "sha of file:///x/s2");
  ASSERT_OK(Call(*agent_, &Stub::StartActor, node_.StartLocal(3, "s2", 2), &operation));
  torpor::v1::Inventory inventory;
  ASSERT_OK(Call(*agent_, &Stub::GetInventory, torpor::v1::GetInventoryRequest(), &inventory));
  EXPECT_EQ(inventory.residents_size(), 1);
  EXPECT_EQ(inventory.local_copies_size(), 1);
  ASSERT_OK(Call(*agent_, &Stub::StopActor, node_.StopRequest(4), &operation));
  torpor::v1::GetOperationRequest get;
  get.set_op_id(operation.op_id());
  ASSERT_OK(Call(*agent_, &Stub::GetOperation, get, &operation));
  EXPECT_EQ(operation.method(), "StopActor");
}

TEST_F(AgentRpcTest, RefusalsCarryTheirReason) {
  using Stub = torpor::v1::NodeAgent::Stub;
  Operation operation;
  auto request = node_.StartRequest(1);
  request.mutable_op()->set_node_lease_id("old");
  EXPECT_THAT(Call(*agent_, &Stub::StartActor, request, &operation),
              HasReason(Code::kFailedPrecondition, "STALE_LEASE"));
  EXPECT_THAT(Call(*agent_, &Stub::Prefetch, torpor::v1::PrefetchRequest(), &operation),
              HasReason(Code::kUnimplemented, "NOT_IMPLEMENTED"));
}

TEST_F(AgentRpcTest, WorkersRegisterAndReportOnTheirSocket) {
  using Stub = torpor::v1::WorkerSupport::Stub;
  torpor::v1::RegisterWorkerResponse registered;
  torpor::v1::WorkerInfo info = node_.worker().Info();
  info.clear_worker_uid();
  ASSERT_OK(Call(*support_, &Stub::RegisterWorker, info, &registered));
  EXPECT_EQ(registered.worker_uid(), node_.worker().worker_uid);
  EXPECT_EQ(registered.epoch(), 2);
  torpor::v1::ReportActorResponse reported;
  torpor::v1::ExitReport exit;
  exit.set_actor_uid(kActorUid);
  EXPECT_THAT(Call(*support_, &Stub::ReportExit, exit, &reported),
              HasReason(Code::kPermissionDenied, "NOT_ALLOWED"));
}

TEST_F(AgentRpcTest, LogsAreStreamed) {
  ASSERT_OK(TestNode::Outcome(node_.agent().StartActor(node_.StartRequest(1))));
  ASSERT_OK(node_.dirs().root().WriteFile(
      NodeDirs::ActorPath(kActorUid, kLogs) + "/app.log",
      R"({"time":"2026-01-01T00:00:00Z","container":"app","stream":"stdout","line":"hello"})"
      "\n",
      0600));
  torpor::v1::ReadLogsRequest request;
  request.mutable_actor()->set_atespace("demo");
  request.mutable_actor()->set_name("counter");
  grpc::ClientContext context;
  rpc::SetDeadline(&context, std::chrono::seconds(20));
  auto reader = ops_->ReadLogs(&context, request);
  torpor::v1::LogLine line;
  ASSERT_TRUE(reader->Read(&line));
  EXPECT_EQ(line.line(), "hello");
  EXPECT_FALSE(reader->Read(&line));
  EXPECT_OK(rpc::FromGrpc(reader->Finish()));
}

TEST_F(AgentRpcTest, AnUnreachablePeerIsUnavailableWithoutReason) {
  auto worker = MakeGrpcWorkerClient("unix:" + Socket("worker-none.sock"));
  auto info = worker->GetInfo(std::chrono::seconds(5));
  EXPECT_THAT(info, HasCode(Code::kUnavailable));
  EXPECT_EQ(ReasonOf(info.status()), "");
}

}  // namespace
}  // namespace torpor::agent
