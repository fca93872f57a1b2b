#include "mover/rpc/mover_service.h"

#include <grpcpp/server_context.h>

#include "model/reasons.h"
#include "rpc/status.h"
#include "torpor/v1/mover.grpc.pb.h"

namespace torpor::mover {
namespace {

using grpc::ServerContext;
using rpc::Answer;

class MoverService : public torpor::v1::Mover::Service {
 public:
  explicit MoverService(Mover* mover) : mover_(mover) {}

  grpc::Status Upload(ServerContext*, const torpor::v1::UploadRequest* request,
                      torpor::v1::Operation* response) override {
    return Answer(mover_->Upload(*request), response);
  }
  grpc::Status Fetch(ServerContext*, const torpor::v1::FetchRequest* request,
                     torpor::v1::Operation* response) override {
    return Answer(mover_->Fetch(*request), response);
  }
  grpc::Status FetchAsset(ServerContext*, const torpor::v1::FetchAssetRequest*,
                          torpor::v1::Operation*) override {
    return rpc::ToGrpc(Fail(reasons::kNotImplemented, "assets are not fetched by this version"));
  }
  grpc::Status PullImage(ServerContext*, const torpor::v1::PullImageRequest* request,
                         torpor::v1::Operation* response) override {
    return Answer(mover_->PullImage(*request), response);
  }
  grpc::Status StatSnapshot(ServerContext*, const torpor::v1::StatSnapshotRequest* request,
                            torpor::v1::StatSnapshotResponse* response) override {
    return Answer(mover_->StatSnapshot(*request), response);
  }
  grpc::Status GetOperation(ServerContext*, const torpor::v1::GetOperationRequest* request,
                            torpor::v1::Operation* response) override {
    return Answer(mover_->GetOperation(*request), response);
  }
  grpc::Status CancelOperation(ServerContext*, const torpor::v1::CancelOperationRequest* request,
                               torpor::v1::Operation* response) override {
    return Answer(mover_->CancelOperation(*request), response);
  }

 private:
  Mover* const mover_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeMoverService(Mover* mover) {
  return std::make_unique<MoverService>(mover);
}

}  // namespace torpor::mover
