#pragma once
// The agent's peers over gRPC. `target` is as in rpc/channel.h. Clients are thread-safe.

#include <memory>
#include <string>

#include "agent/mover_client.h"
#include "agent/registry_client.h"
#include "agent/worker_client.h"

namespace torpor::agent {

std::shared_ptr<WorkerClient> MakeGrpcWorkerClient(const std::string& target);
std::unique_ptr<MoverClient> MakeGrpcMoverClient(const std::string& target);
std::unique_ptr<RegistryClient> MakeGrpcRegistryClient(const std::string& target);

}  // namespace torpor::agent
