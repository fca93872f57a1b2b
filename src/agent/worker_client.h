#pragma once
// How the node agent reaches one worker. The gRPC implementation is in agent/rpc, fakes lie beside
// the tests.
//
// Calls block until the answer or `timeout` and may come from any thread. An Operation, also one
// that ended FAILED, means that the worker accepted the request. An error means that it did not,
// except UNAVAILABLE, CANCELLED and DEADLINE_EXCEEDED: then nobody knows, and GetOperation with the
// same op id tells.

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "base/time.h"
#include "torpor/v1/common.pb.h"
#include "torpor/v1/worker.pb.h"

namespace torpor::agent {

class WorkerClient {
 public:
  virtual ~WorkerClient() = default;
  virtual StatusOr<torpor::v1::WorkerInfo> GetInfo(Duration timeout) = 0;
  virtual StatusOr<torpor::v1::Operation> StartWorkload(
      const torpor::v1::StartWorkloadRequest& request, Duration timeout) = 0;
  virtual StatusOr<torpor::v1::Operation> CaptureWorkload(
      const torpor::v1::CaptureWorkloadRequest& request, Duration timeout) = 0;
  virtual StatusOr<torpor::v1::Operation> StopWorkload(
      const torpor::v1::StopWorkloadRequest& request, Duration timeout) = 0;
  virtual StatusOr<torpor::v1::Operation> GetOperation(
      const torpor::v1::GetOperationRequest& request, Duration timeout) = 0;
  virtual StatusOr<torpor::v1::ListWorkloadsResponse> ListWorkloads(Duration timeout) = 0;
  virtual StatusOr<torpor::v1::GetWorkloadStatsResponse> GetWorkloadStats(
      const torpor::v1::GetWorkloadStatsRequest& request, Duration timeout) = 0;
};

// The client of the worker in slot `worker_id`. Connects at its first call; never null.
using WorkerClientFactory =
    std::function<std::shared_ptr<WorkerClient>(const std::string& worker_id)>;

}  // namespace torpor::agent
