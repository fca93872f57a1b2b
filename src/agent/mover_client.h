#pragma once
// How the node agent reaches the mover. The gRPC implementation is in agent/rpc, fakes lie beside
// the tests. Calls and errors are as in worker_client.h.

#include "base/status.h"
#include "base/time.h"
#include "torpor/v1/common.pb.h"
#include "torpor/v1/mover.pb.h"

namespace torpor::agent {

class MoverClient {
 public:
  virtual ~MoverClient() = default;
  virtual StatusOr<torpor::v1::Operation> Upload(const torpor::v1::UploadRequest& request,
                                                 Duration timeout) = 0;
  virtual StatusOr<torpor::v1::Operation> Fetch(const torpor::v1::FetchRequest& request,
                                                Duration timeout) = 0;
  virtual StatusOr<torpor::v1::Operation> PullImage(const torpor::v1::PullImageRequest& request,
                                                    Duration timeout) = 0;
  virtual StatusOr<torpor::v1::StatSnapshotResponse> StatSnapshot(
      const torpor::v1::StatSnapshotRequest& request, Duration timeout) = 0;
  virtual StatusOr<torpor::v1::Operation> GetOperation(
      const torpor::v1::GetOperationRequest& request, Duration timeout) = 0;
  virtual StatusOr<torpor::v1::Operation> CancelOperation(
      const torpor::v1::CancelOperationRequest& request, Duration timeout) = 0;
};

}  // namespace torpor::agent
