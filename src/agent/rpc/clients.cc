#include "agent/rpc/clients.h"

#include <grpcpp/client_context.h>

#include "rpc/channel.h"
#include "rpc/status.h"
#include "torpor/v1/mover.grpc.pb.h"
#include "torpor/v1/node.grpc.pb.h"
#include "torpor/v1/worker.grpc.pb.h"

namespace torpor::agent {
namespace {

using torpor::v1::GetOperationRequest;
using torpor::v1::Operation;

template <typename Response, typename Stub, typename Request>
StatusOr<Response> Call(Stub* stub,
                        grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                     Response*),
                        const Request& request, Duration timeout) {
  grpc::ClientContext context;
  rpc::SetDeadline(&context, timeout);
  Response response;
  grpc::Status status = (stub->*method)(&context, request, &response);
  if (!status.ok()) return rpc::FromGrpc(status);
  return response;
}

class GrpcWorkerClient : public WorkerClient {
  using Stub = torpor::v1::Worker::Stub;

 public:
  explicit GrpcWorkerClient(const std::string& target)
      : stub_(torpor::v1::Worker::NewStub(rpc::Connect(target))) {}

  StatusOr<torpor::v1::WorkerInfo> GetInfo(Duration timeout) override {
    return Call<torpor::v1::WorkerInfo>(stub_.get(), &Stub::GetInfo, torpor::v1::GetInfoRequest(),
                                        timeout);
  }
  StatusOr<Operation> StartWorkload(const torpor::v1::StartWorkloadRequest& request,
                                    Duration timeout) override {
    return Call<Operation>(stub_.get(), &Stub::StartWorkload, request, timeout);
  }
  StatusOr<Operation> CaptureWorkload(const torpor::v1::CaptureWorkloadRequest& request,
                                      Duration timeout) override {
    return Call<Operation>(stub_.get(), &Stub::CaptureWorkload, request, timeout);
  }
  StatusOr<Operation> StopWorkload(const torpor::v1::StopWorkloadRequest& request,
                                   Duration timeout) override {
    return Call<Operation>(stub_.get(), &Stub::StopWorkload, request, timeout);
  }
  StatusOr<Operation> GetOperation(const GetOperationRequest& request, Duration timeout) override {
    return Call<Operation>(stub_.get(), &Stub::GetOperation, request, timeout);
  }
  StatusOr<torpor::v1::ListWorkloadsResponse> ListWorkloads(Duration timeout) override {
    return Call<torpor::v1::ListWorkloadsResponse>(stub_.get(), &Stub::ListWorkloads,
                                                   torpor::v1::ListWorkloadsRequest(), timeout);
  }
  StatusOr<torpor::v1::GetWorkloadStatsResponse> GetWorkloadStats(
      const torpor::v1::GetWorkloadStatsRequest& request, Duration timeout) override {
    return Call<torpor::v1::GetWorkloadStatsResponse>(stub_.get(), &Stub::GetWorkloadStats, request,
                                                      timeout);
  }

 private:
  const std::unique_ptr<Stub> stub_;
};

class GrpcMoverClient : public MoverClient {
  using Stub = torpor::v1::Mover::Stub;

 public:
  explicit GrpcMoverClient(const std::string& target)
      : stub_(torpor::v1::Mover::NewStub(rpc::Connect(target))) {}

  StatusOr<Operation> Upload(const torpor::v1::UploadRequest& request, Duration timeout) override {
    return Call<Operation>(stub_.get(), &Stub::Upload, request, timeout);
  }
  StatusOr<Operation> Fetch(const torpor::v1::FetchRequest& request, Duration timeout) override {
    return Call<Operation>(stub_.get(), &Stub::Fetch, request, timeout);
  }
  StatusOr<Operation> PullImage(const torpor::v1::PullImageRequest& request,
                                Duration timeout) override {
    return Call<Operation>(stub_.get(), &Stub::PullImage, request, timeout);
  }
  StatusOr<torpor::v1::StatSnapshotResponse> StatSnapshot(
      const torpor::v1::StatSnapshotRequest& request, Duration timeout) override {
    return Call<torpor::v1::StatSnapshotResponse>(stub_.get(), &Stub::StatSnapshot, request,
                                                  timeout);
  }
  StatusOr<Operation> GetOperation(const GetOperationRequest& request, Duration timeout) override {
    return Call<Operation>(stub_.get(), &Stub::GetOperation, request, timeout);
  }
  StatusOr<Operation> CancelOperation(const torpor::v1::CancelOperationRequest& request,
                                      Duration timeout) override {
    return Call<Operation>(stub_.get(), &Stub::CancelOperation, request, timeout);
  }

 private:
  const std::unique_ptr<Stub> stub_;
};

class GrpcRegistryClient : public RegistryClient {
  using Stub = torpor::v1::NodeRegistry::Stub;

 public:
  explicit GrpcRegistryClient(const std::string& target)
      : stub_(torpor::v1::NodeRegistry::NewStub(rpc::Connect(target))) {}

  StatusOr<torpor::v1::RegisterNodeResponse> RegisterNode(
      const torpor::v1::RegisterNodeRequest& request, Duration timeout) override {
    return Call<torpor::v1::RegisterNodeResponse>(stub_.get(), &Stub::RegisterNode, request,
                                                  timeout);
  }
  StatusOr<torpor::v1::RenewLeaseResponse> RenewLease(const torpor::v1::RenewLeaseRequest& request,
                                                      Duration timeout) override {
    return Call<torpor::v1::RenewLeaseResponse>(stub_.get(), &Stub::RenewLease, request, timeout);
  }
  Status ReportOperation(const torpor::v1::ReportOperationRequest& request,
                         Duration timeout) override {
    return Call<torpor::v1::ReportOperationResponse>(stub_.get(), &Stub::ReportOperation, request,
                                                     timeout)
        .status();
  }
  Status ReportActor(const torpor::v1::ReportActorRequest& request, Duration timeout) override {
    return Call<torpor::v1::ReportActorResponse>(stub_.get(), &Stub::ReportActor, request, timeout)
        .status();
  }
  StatusOr<torpor::v1::ListNodeActorsResponse> ListNodeActors(
      const torpor::v1::ListNodeActorsRequest& request, Duration timeout) override {
    return Call<torpor::v1::ListNodeActorsResponse>(stub_.get(), &Stub::ListNodeActors, request,
                                                    timeout);
  }

 private:
  const std::unique_ptr<Stub> stub_;
};

}  // namespace

std::shared_ptr<WorkerClient> MakeGrpcWorkerClient(const std::string& target) {
  return std::make_shared<GrpcWorkerClient>(target);
}

std::unique_ptr<MoverClient> MakeGrpcMoverClient(const std::string& target) {
  return std::make_unique<GrpcMoverClient>(target);
}

std::unique_ptr<RegistryClient> MakeGrpcRegistryClient(const std::string& target) {
  return std::make_unique<GrpcRegistryClient>(target);
}

}  // namespace torpor::agent
