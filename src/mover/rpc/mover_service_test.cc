#include "mover/rpc/mover_service.h"

#include <grpcpp/client_context.h>

#include "base/testing/matchers.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "rpc/unix_server.h"
#include "snapshot/testing/temp_dir.h"
#include "torpor/v1/mover.grpc.pb.h"

namespace torpor::mover {
namespace {

class MoverServiceTest : public testing::Test {
 protected:
  MoverServiceTest() {
    MoverOptions options;
    options.node_dir = node_.path();
    options.allowed_storage = {"memory://bucket"};
    mover_ = std::move(Mover::Create(options, &stores_, &images_, Clock::Real())).value();
    service_ = MakeMoverService(mover_.get());
    server_ = std::move(rpc::UnixServer::Start(node_ / "mover.sock", {service_.get()})).value();
    stub_ = torpor::v1::Mover::NewStub(rpc::Connect("unix:" + (node_ / "mover.sock")));
  }

  snapshot::TempDir node_;
  objstore::StoreRegistry stores_;
  ImagePuller images_{ImagePullerOptions{}};
  std::unique_ptr<Mover> mover_;
  std::unique_ptr<grpc::Service> service_;
  std::unique_ptr<rpc::UnixServer> server_;
  std::unique_ptr<torpor::v1::Mover::Stub> stub_;
};

TEST_F(MoverServiceTest, EveryMethodReachesTheMover) {
  torpor::v1::Operation op;
  auto call = [&](auto method, const auto& request, auto* response) {
    grpc::ClientContext context;
    return rpc::FromGrpc((stub_.get()->*method)(&context, request, response));
  };
  using Stub = torpor::v1::Mover::Stub;
  EXPECT_THAT(call(&Stub::Upload, torpor::v1::UploadRequest(), &op),
              HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  EXPECT_THAT(call(&Stub::Fetch, torpor::v1::FetchRequest(), &op),
              HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  EXPECT_THAT(call(&Stub::FetchAsset, torpor::v1::FetchAssetRequest(), &op),
              HasReason(Code::kUnimplemented, "NOT_IMPLEMENTED"));
  EXPECT_THAT(call(&Stub::PullImage, torpor::v1::PullImageRequest(), &op),
              HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  torpor::v1::StatSnapshotRequest stat;
  stat.set_uri("memory://other/x");
  torpor::v1::StatSnapshotResponse stat_response;
  EXPECT_THAT(call(&Stub::StatSnapshot, stat, &stat_response),
              HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  torpor::v1::GetOperationRequest get;
  get.set_op_id("11111111-1111-4111-8111-111111111111");
  EXPECT_THAT(call(&Stub::GetOperation, get, &op),
              HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
  torpor::v1::CancelOperationRequest cancel;
  cancel.set_op_id(get.op_id());
  EXPECT_THAT(call(&Stub::CancelOperation, cancel, &op),
              HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
}

}  // namespace
}  // namespace torpor::mover
