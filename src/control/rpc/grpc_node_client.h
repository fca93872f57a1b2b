#pragma once
// NodeClient over gRPC: torpor.v1.NodeAgent. Every client has a channel of its own, which
// reconnects by itself. The destructor waits for the answers of the calls that it cancels, so a
// callback must not hold the last reference to its client.

#include "control/node_client.h"

namespace torpor::control {

// Errors that the transport made carry the reason NODE_UNREACHABLE (UNAVAILABLE) or none.
std::shared_ptr<NodeClient> MakeGrpcNodeClient(const std::string& address);

}  // namespace torpor::control
