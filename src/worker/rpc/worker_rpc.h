#pragma once
// torpor.v1.Worker on gRPC.

#include <grpcpp/impl/service_type.h>

#include <memory>

#include "worker/worker_service.h"

namespace torpor::worker {

// `service` outlives the result.
std::unique_ptr<grpc::Service> MakeWorkerRpc(WorkerService* service);

}  // namespace torpor::worker
