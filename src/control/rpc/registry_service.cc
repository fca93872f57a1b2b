#include "control/rpc/registry_service.h"

#include <grpcpp/server_context.h>

#include "control/control_plane.h"
#include "rpc/status.h"
#include "torpor/v1/node.grpc.pb.h"

namespace torpor::control {
namespace {

using grpc::ServerContext;
using rpc::Answer;

class Registry : public torpor::v1::NodeRegistry::Service {
 public:
  explicit Registry(ControlPlane* control) : control_(control) {}
  grpc::Status RegisterNode(ServerContext*, const torpor::v1::RegisterNodeRequest* request,
                            torpor::v1::RegisterNodeResponse* response) override {
    return Answer(control_->RegisterNode(*request), response);
  }
  grpc::Status RenewLease(ServerContext*, const torpor::v1::RenewLeaseRequest* request,
                          torpor::v1::RenewLeaseResponse* response) override {
    return Answer(control_->RenewLease(*request), response);
  }
  grpc::Status ReportOperation(ServerContext*, const torpor::v1::ReportOperationRequest* request,
                               torpor::v1::ReportOperationResponse* response) override {
    return Answer(control_->ReportOperation(*request), response);
  }
  grpc::Status ReportActor(ServerContext*, const torpor::v1::ReportActorRequest* request,
                           torpor::v1::ReportActorResponse* response) override {
    return Answer(control_->ReportActor(*request), response);
  }
  grpc::Status ReportUsage(ServerContext*, const torpor::v1::ReportUsageRequest* request,
                           torpor::v1::ReportUsageResponse* response) override {
    return Answer(control_->ReportUsage(*request), response);
  }
  grpc::Status ListNodeActors(ServerContext*, const torpor::v1::ListNodeActorsRequest* request,
                              torpor::v1::ListNodeActorsResponse* response) override {
    return Answer(control_->ListNodeActors(*request), response);
  }

 private:
  ControlPlane* const control_;
};

class Router : public torpor::v1::RouterSupport::Service {
 public:
  explicit Router(ControlPlane* control) : control_(control) {}
  grpc::Status ReportActivity(ServerContext*, const torpor::v1::ReportActivityRequest* request,
                              torpor::v1::ReportActivityResponse* response) override {
    return Answer(control_->ReportActivity(*request), response);
  }
  grpc::Status WishIdle(ServerContext*, const torpor::v1::IdleWish* request,
                        torpor::v1::ReportActorResponse* response) override {
    return Answer(control_->WishIdle(*request), response);
  }
  grpc::Status WishAwake(ServerContext*, const torpor::v1::AwakeWish* request,
                         torpor::v1::ReportActorResponse* response) override {
    return Answer(control_->WishAwake(*request), response);
  }

 private:
  ControlPlane* const control_;
};

}  // namespace

std::vector<std::unique_ptr<grpc::Service>> RegistryServices(ControlPlane* control) {
  std::vector<std::unique_ptr<grpc::Service>> services;
  services.push_back(std::make_unique<Registry>(control));
  services.push_back(std::make_unique<Router>(control));
  return services;
}

}  // namespace torpor::control
