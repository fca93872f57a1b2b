#pragma once
// How the node agent reaches the control plane. The gRPC implementation is in agent/rpc, fakes lie
// beside the tests. Calls block until the answer or `timeout` and may come from any thread. All of
// them may be repeated.

#include "base/status.h"
#include "base/time.h"
#include "torpor/v1/node.pb.h"

namespace torpor::agent {

class RegistryClient {
 public:
  virtual ~RegistryClient() = default;
  virtual StatusOr<torpor::v1::RegisterNodeResponse> RegisterNode(
      const torpor::v1::RegisterNodeRequest& request, Duration timeout) = 0;
  // FAILED_PRECONDITION STALE_LEASE: register anew.
  virtual StatusOr<torpor::v1::RenewLeaseResponse> RenewLease(
      const torpor::v1::RenewLeaseRequest& request, Duration timeout) = 0;
  virtual Status ReportOperation(const torpor::v1::ReportOperationRequest& request,
                                 Duration timeout) = 0;
  virtual Status ReportActor(const torpor::v1::ReportActorRequest& request, Duration timeout) = 0;
  virtual StatusOr<torpor::v1::ListNodeActorsResponse> ListNodeActors(
      const torpor::v1::ListNodeActorsRequest& request, Duration timeout) = 0;
};

}  // namespace torpor::agent
