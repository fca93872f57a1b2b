#pragma once
// How the control plane reaches one node agent. The gRPC implementation is in control/rpc, fakes
// lie beside the tests.
//
// Every call is asynchronous and answers once, at latest shortly after `timeout`, from any thread.
// An Operation, also one that ended FAILED, means that the node accepted the request. An error
// means that it did not, except UNAVAILABLE, CANCELLED and DEADLINE_EXCEEDED: then nobody knows,
// and GetOperation with the same op id tells. Thread-safe. A client must outlive none of its calls:
// its destructor ends them with CANCELLED.

#include <functional>
#include <memory>
#include <string>

#include "base/time.h"
#include "control/done.h"
#include "torpor/v1/common.pb.h"
#include "torpor/v1/node.pb.h"

namespace torpor::control {

using OperationDone = Done<torpor::v1::Operation>;

class NodeClient {
 public:
  virtual ~NodeClient() = default;
  virtual void StartActor(const torpor::v1::StartActorRequest& request, Duration timeout,
                          OperationDone done) = 0;
  virtual void CaptureActor(const torpor::v1::CaptureActorRequest& request, Duration timeout,
                            OperationDone done) = 0;
  virtual void UploadSnapshot(const torpor::v1::UploadSnapshotRequest& request, Duration timeout,
                              OperationDone done) = 0;
  virtual void StopActor(const torpor::v1::StopActorRequest& request, Duration timeout,
                         OperationDone done) = 0;
  virtual void DeleteLocalSnapshots(const torpor::v1::DeleteLocalSnapshotsRequest& request,
                                    Duration timeout, OperationDone done) = 0;
  virtual void GetOperation(const torpor::v1::GetOperationRequest& request, Duration timeout,
                            OperationDone done) = 0;
  // Asked once, after a start of the control plane, to use a node before its next renewal. The
  // default cannot tell; then the renewal is waited for.
  virtual void GetInventory(Duration timeout, Done<torpor::v1::Inventory> done);
};

// A client of the agent at `address` (`unix:<path>` or `host:port`). Connects when first used;
// never blocks and never returns null. Called from the control plane's writer only.
using NodeClientFactory = std::function<std::shared_ptr<NodeClient>(const std::string& address)>;

}  // namespace torpor::control
