// The rim: a worker's service and its client of the agent over real unix sockets.
#include <grpcpp/server_context.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "rpc/unix_server.h"
#include "torpor/v1/worker.grpc.pb.h"
#include "worker/rpc/support_client.h"
#include "worker/rpc/worker_rpc.h"
#include "worker/testing/scripted_runtime.h"

namespace torpor::worker {
namespace {

using std::chrono::seconds;

class FakeAgent : public torpor::v1::WorkerSupport::Service {
 public:
  grpc::Status RegisterWorker(grpc::ServerContext*, const torpor::v1::WorkerInfo* request,
                              torpor::v1::RegisterWorkerResponse* response) override {
    MutexLock lock(&mu_);
    if (++registrations_ == 1) return {grpc::StatusCode::UNAVAILABLE, "not yet"};
    name_ = request->name();
    response->set_worker_uid("w1");
    response->set_epoch(9);
    changed_.SignalAll();
    return grpc::Status::OK;
  }
  grpc::Status ReportExit(grpc::ServerContext*, const torpor::v1::ExitReport* request,
                          torpor::v1::ReportActorResponse*) override {
    MutexLock lock(&mu_);
    calls_.push_back(request->event_id());
    changed_.SignalAll();
    if (request->event_id() == "refused") return {grpc::StatusCode::NOT_FOUND, "unknown actor"};
    if (calls_.size() == 2) return {grpc::StatusCode::UNAVAILABLE, "lost"};
    return grpc::Status::OK;
  }
  std::vector<std::string> WaitForCalls(size_t count) {
    MonotonicTime deadline = Clock::Real()->Now() + seconds(20);
    MutexLock lock(&mu_);
    while (calls_.size() < count && changed_.WaitUntil(&mu_, deadline)) {
    }
    return calls_;
  }
  std::string name() {
    MutexLock lock(&mu_);
    return name_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  int registrations_ GUARDED_BY(mu_) = 0;
  std::string name_ GUARDED_BY(mu_);
  std::vector<std::string> calls_ GUARDED_BY(mu_);
};

class WorkerRpcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/worker-rpc-XXXXXX";
    dir_ = mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(dir_); }
  std::string dir_;
};

torpor::v1::ExitReport ReportNamed(const std::string& event_id) {
  torpor::v1::ExitReport report;
  report.set_event_id(event_id);
  return report;
}

TEST_F(WorkerRpcTest, RegistersAndRepeatsReportsUntilTheyArrive) {
  FakeAgent agent;
  SupportClient client(dir_ + "/support.sock");
  torpor::v1::WorkerInfo info;
  info.set_name("gvisor-0");
  Mutex mu;
  CondVar changed;
  int64_t epoch = 0;
  client.Register(info, [&](const torpor::v1::RegisterWorkerResponse& response) {
    MutexLock lock(&mu);
    epoch = response.epoch();
    changed.SignalAll();
  });
  client.Report(ReportNamed("refused"));
  client.Report(ReportNamed("second"));
  client.Report(ReportNamed("third"));
  // The agent comes up after the worker.
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<rpc::UnixServer> server,
                       rpc::UnixServer::Start(dir_ + "/support.sock", {&agent}));
  EXPECT_EQ(agent.WaitForCalls(4),
            (std::vector<std::string>{"refused", "second", "second", "third"}));
  MutexLock lock(&mu);
  EXPECT_EQ(epoch, 9);
  EXPECT_EQ(agent.name(), "gvisor-0");
}

TEST_F(WorkerRpcTest, CarriesErrorsAndOutcomes) {
  ScriptedRuntime runtime;
  os::DirFd node_dir;
  ASSERT_OK_AND_ASSIGN(node_dir, os::DirFd::OpenPath(dir_));
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<LogPump> logs, LogPump::Start(Clock::Real()));
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<Door> door,
                       Door::Start({.path = dir_ + "/door.sock"}, Clock::Real()));
  SupportClient exits(dir_ + "/support.sock");
  WorkloadTools tools = {.runtime = &runtime,
                         .network = &runtime,
                         .logs = logs.get(),
                         .node_dir = &node_dir,
                         .node_path = dir_,
                         .clock = Clock::Real()};
  torpor::v1::WorkerInfo info;
  info.set_name("gvisor-0");
  WorkerService service(tools, door.get(), &exits, IdSource::Real(), info);
  std::unique_ptr<grpc::Service> adapter = MakeWorkerRpc(&service);
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<rpc::UnixServer> server,
                       rpc::UnixServer::Start(dir_ + "/worker.sock", {adapter.get()}));
  auto stub = torpor::v1::Worker::NewStub(rpc::Connect("unix:" + dir_ + "/worker.sock"));

  grpc::ClientContext first, second, third;
  torpor::v1::WorkerInfo got;
  ASSERT_TRUE(stub->GetInfo(&first, {}, &got).ok());
  EXPECT_EQ(got.name(), "gvisor-0");

  torpor::v1::StopWorkloadRequest stop;
  torpor::v1::Operation op;
  EXPECT_THAT(rpc::FromGrpc(stub->StopWorkload(&second, stop, &op)),
              HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  stop.mutable_op()->set_op_id(IdSource::Real()->NewUuid());
  stop.mutable_op()->set_actor_uid(IdSource::Real()->NewUuid());
  stop.mutable_op()->set_generation(1);
  ASSERT_TRUE(stub->StopWorkload(&third, stop, &op).ok());
  EXPECT_EQ(op.state(), torpor::v1::Operation::STATE_SUCCEEDED);
}

}  // namespace
}  // namespace torpor::worker
