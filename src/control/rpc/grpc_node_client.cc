#include "control/rpc/grpc_node_client.h"

#include <grpcpp/client_context.h>

#include <set>

#include "base/sync.h"
#include "model/reasons.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "torpor/v1/node.grpc.pb.h"

namespace torpor::control {
namespace {

using torpor::v1::NodeAgent;

// The calls under way. Outlives the client, because gRPC may answer later.
class OpenCalls {
 public:
  void Add(grpc::ClientContext* context) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    open_.insert(context);
    if (closed_) context->TryCancel();
  }
  void Remove(grpc::ClientContext* context) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    open_.erase(context);
    changed_.SignalAll();
  }
  // Returns when every call was answered.
  void CancelAll() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    closed_ = true;
    for (grpc::ClientContext* context : open_) context->TryCancel();
    while (!open_.empty()) changed_.Wait(&mu_);
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool closed_ GUARDED_BY(mu_) = false;
  std::set<grpc::ClientContext*> open_ GUARDED_BY(mu_);
};

class GrpcNodeClient : public NodeClient {
 public:
  explicit GrpcNodeClient(const std::string& address)
      : address_(address),
        stub_(NodeAgent::NewStub(rpc::Connect(address))),
        calls_(std::make_shared<OpenCalls>()) {}
  ~GrpcNodeClient() override { calls_->CancelAll(); }

  void StartActor(const torpor::v1::StartActorRequest& request, Duration timeout,
                  OperationDone done) override {
    Send(&NodeAgent::Stub::async_interface::StartActor, request, timeout, std::move(done));
  }
  void CaptureActor(const torpor::v1::CaptureActorRequest& request, Duration timeout,
                    OperationDone done) override {
    Send(&NodeAgent::Stub::async_interface::CaptureActor, request, timeout, std::move(done));
  }
  void UploadSnapshot(const torpor::v1::UploadSnapshotRequest& request, Duration timeout,
                      OperationDone done) override {
    Send(&NodeAgent::Stub::async_interface::UploadSnapshot, request, timeout, std::move(done));
  }
  void StopActor(const torpor::v1::StopActorRequest& request, Duration timeout,
                 OperationDone done) override {
    Send(&NodeAgent::Stub::async_interface::StopActor, request, timeout, std::move(done));
  }
  void DeleteLocalSnapshots(const torpor::v1::DeleteLocalSnapshotsRequest& request,
                            Duration timeout, OperationDone done) override {
    Send(&NodeAgent::Stub::async_interface::DeleteLocalSnapshots, request, timeout,
         std::move(done));
  }
  void GetOperation(const torpor::v1::GetOperationRequest& request, Duration timeout,
                    OperationDone done) override {
    Send(&NodeAgent::Stub::async_interface::GetOperation, request, timeout, std::move(done));
  }

  void GetInventory(Duration timeout, Done<torpor::v1::Inventory> done) override {
    Send(&NodeAgent::Stub::async_interface::GetInventory, torpor::v1::GetInventoryRequest(),
         timeout, std::move(done));
  }

 private:
  using Async = NodeAgent::StubInterface::async_interface;

  template <typename Request, typename Response>
  void Send(void (Async::*method)(grpc::ClientContext*, const Request*, Response*,
                                  std::function<void(grpc::Status)>),
            const Request& request, Duration timeout, Done<Response> done) {
    struct Call {
      grpc::ClientContext context;
      Request request;
      Response response;
    };
    auto call = std::make_shared<Call>();
    call->request = request;
    rpc::SetDeadline(&call->context, timeout);
    calls_->Add(&call->context);
    (stub_->async()->*method)(
        &call->context, &call->request, &call->response,
        [call, calls = calls_, address = address_, done = std::move(done)](grpc::Status status) {
          if (status.ok()) {
            done(std::move(call->response));
          } else {
            done(Named(rpc::FromGrpc(status), address));
          }
          calls->Remove(&call->context);
        });
  }

  static Status Named(Status status, const std::string& address) {
    if (status.code() != Code::kUnavailable || !ReasonOf(status).empty()) return status;
    return Fail(reasons::kNodeUnreachable, "the node agent at " + address + " does not answer: " +
                                               std::string(status.message()));
  }

  const std::string address_;
  const std::unique_ptr<NodeAgent::Stub> stub_;
  const std::shared_ptr<OpenCalls> calls_;
};

}  // namespace

std::shared_ptr<NodeClient> MakeGrpcNodeClient(const std::string& address) {
  return std::make_shared<GrpcNodeClient>(address);
}

}  // namespace torpor::control
