#pragma once
// torpor.v1.NodeRegistry and RouterSupport over a ControlPlane, for the private socket of the
// apiserver (rpc/unix_server.h). Calls hold a gRPC thread until their change is committed.

#include <memory>
#include <vector>

namespace grpc {
class Service;
}

namespace torpor::control {

class ControlPlane;

// `control` must outlive the server that serves them.
std::vector<std::unique_ptr<grpc::Service>> RegistryServices(ControlPlane* control);

}  // namespace torpor::control
