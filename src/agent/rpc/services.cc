#include "agent/rpc/services.h"

#include <grpcpp/server_context.h>

#include "agent/log_reader.h"
#include "agent/node_agent.h"
#include "model/reasons.h"
#include "rpc/status.h"
#include "torpor/v1/node.grpc.pb.h"
#include "torpor/v1/ops.grpc.pb.h"
#include "torpor/v1/worker.grpc.pb.h"

namespace torpor::agent {
namespace {

using grpc::ServerContext;
using rpc::Answer;
using torpor::v1::Operation;

class NodeAgentService final : public torpor::v1::NodeAgent::Service {
 public:
  explicit NodeAgentService(NodeAgent* agent) : agent_(agent) {}

  grpc::Status StartActor(ServerContext*, const torpor::v1::StartActorRequest* request,
                          Operation* response) override {
    return Answer(agent_->StartActor(*request), response);
  }
  grpc::Status CaptureActor(ServerContext*, const torpor::v1::CaptureActorRequest* request,
                            Operation* response) override {
    return Answer(agent_->CaptureActor(*request), response);
  }
  grpc::Status UploadSnapshot(ServerContext*, const torpor::v1::UploadSnapshotRequest* request,
                              Operation* response) override {
    return Answer(agent_->UploadSnapshot(*request), response);
  }
  grpc::Status StopActor(ServerContext*, const torpor::v1::StopActorRequest* request,
                         Operation* response) override {
    return Answer(agent_->StopActor(*request), response);
  }
  grpc::Status DeleteLocalSnapshots(ServerContext*,
                                    const torpor::v1::DeleteLocalSnapshotsRequest* request,
                                    Operation* response) override {
    return Answer(agent_->DeleteLocalSnapshots(*request), response);
  }
  grpc::Status Prefetch(ServerContext*, const torpor::v1::PrefetchRequest*, Operation*) override {
    return rpc::ToGrpc(
        Fail(reasons::kNotImplemented, "Prefetch is not implemented by this version"));
  }
  grpc::Status GetOperation(ServerContext*, const torpor::v1::GetOperationRequest* request,
                            Operation* response) override {
    return Answer(agent_->GetOperation(*request), response);
  }
  grpc::Status GetInventory(ServerContext*, const torpor::v1::GetInventoryRequest*,
                            torpor::v1::Inventory* response) override {
    *response = agent_->GetInventory();
    return grpc::Status::OK;
  }

 private:
  NodeAgent* const agent_;
};

class LogService final : public torpor::v1::Ops::Service {
 public:
  explicit LogService(const LogReader* logs) : logs_(logs) {}

  grpc::Status ReadLogs(ServerContext* context, const torpor::v1::ReadLogsRequest* request,
                        grpc::ServerWriter<torpor::v1::LogLine>* writer) override {
    return rpc::ToGrpc(logs_->Read(
        *request, [&](const torpor::v1::LogLine& line) { return writer->Write(line); },
        [&] { return context->IsCancelled(); }));
  }

 private:
  const LogReader* const logs_;
};

class WorkerSupportService final : public torpor::v1::WorkerSupport::Service {
 public:
  WorkerSupportService(NodeAgent* agent, std::string worker_id)
      : agent_(agent), worker_id_(std::move(worker_id)) {}

  grpc::Status RegisterWorker(ServerContext*, const torpor::v1::WorkerInfo* request,
                              torpor::v1::RegisterWorkerResponse* response) override {
    return Answer(agent_->RegisterWorker(worker_id_, *request), response);
  }
  grpc::Status ReportExit(ServerContext*, const torpor::v1::ExitReport* request,
                          torpor::v1::ReportActorResponse*) override {
    return rpc::ToGrpc(agent_->ReportExit(worker_id_, *request));
  }
  grpc::Status WishIdle(ServerContext*, const torpor::v1::IdleWish* request,
                        torpor::v1::ReportActorResponse*) override {
    return rpc::ToGrpc(agent_->WishIdle(worker_id_, *request));
  }
  grpc::Status WishAwake(ServerContext*, const torpor::v1::AwakeWish* request,
                         torpor::v1::ReportActorResponse*) override {
    return rpc::ToGrpc(agent_->WishAwake(worker_id_, *request));
  }

 private:
  NodeAgent* const agent_;
  const std::string worker_id_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::Service>> NodeServices(NodeAgent* agent, const LogReader* logs) {
  std::vector<std::unique_ptr<grpc::Service>> out;
  out.push_back(std::make_unique<NodeAgentService>(agent));
  out.push_back(std::make_unique<LogService>(logs));
  return out;
}

std::unique_ptr<grpc::Service> SupportService(NodeAgent* agent, const std::string& worker_id) {
  return std::make_unique<WorkerSupportService>(agent, worker_id);
}

}  // namespace torpor::agent
