#include "worker/rpc/worker_rpc.h"

#include <grpcpp/server_context.h>

#include "rpc/status.h"
#include "torpor/v1/worker.grpc.pb.h"

namespace torpor::worker {
namespace {

using grpc::ServerContext;
using rpc::Answer;

class WorkerRpc : public torpor::v1::Worker::Service {
 public:
  explicit WorkerRpc(WorkerService* service) : service_(service) {}
  grpc::Status GetInfo(ServerContext*, const torpor::v1::GetInfoRequest*,
                       torpor::v1::WorkerInfo* response) override {
    *response = service_->GetInfo();
    return grpc::Status::OK;
  }
  grpc::Status StartWorkload(ServerContext*, const torpor::v1::StartWorkloadRequest* request,
                             torpor::v1::Operation* response) override {
    return Answer(service_->StartWorkload(*request), response);
  }
  grpc::Status CaptureWorkload(ServerContext*, const torpor::v1::CaptureWorkloadRequest* request,
                               torpor::v1::Operation* response) override {
    return Answer(service_->CaptureWorkload(*request), response);
  }
  grpc::Status StopWorkload(ServerContext*, const torpor::v1::StopWorkloadRequest* request,
                            torpor::v1::Operation* response) override {
    return Answer(service_->StopWorkload(*request), response);
  }
  grpc::Status GetOperation(ServerContext*, const torpor::v1::GetOperationRequest* request,
                            torpor::v1::Operation* response) override {
    return Answer(service_->GetOperation(*request), response);
  }
  grpc::Status ListWorkloads(ServerContext*, const torpor::v1::ListWorkloadsRequest*,
                             torpor::v1::ListWorkloadsResponse* response) override {
    *response = service_->ListWorkloads();
    return grpc::Status::OK;
  }
  grpc::Status GetWorkloadStats(ServerContext*, const torpor::v1::GetWorkloadStatsRequest* request,
                                torpor::v1::GetWorkloadStatsResponse* response) override {
    *response = service_->GetWorkloadStats(*request);
    return grpc::Status::OK;
  }

 private:
  WorkerService* const service_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeWorkerRpc(WorkerService* service) {
  return std::make_unique<WorkerRpc>(service);
}

}  // namespace torpor::worker
