#pragma once
// torpor.v1.Mover on gRPC, for the mover's unix socket. Thread-safe; handlers block as the calls of
// mover.h do.

#include <memory>

#include "mover/mover.h"

namespace grpc {
class Service;
}

namespace torpor::mover {

// `mover` outlives the service.
std::unique_ptr<grpc::Service> MakeMoverService(Mover* mover);

}  // namespace torpor::mover
