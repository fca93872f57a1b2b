#pragma once
// torpor.v1.NodeAgent, the node's part of torpor.v1.Ops and torpor.v1.WorkerSupport over gRPC.
// Calls hold a gRPC thread until their operation ended.

#include <memory>
#include <string>
#include <vector>

namespace grpc {
class Service;
}

namespace torpor::agent {

class LogReader;
class NodeAgent;

// For agent.sock: NodeAgent, and Ops with ReadLogs only. Both arguments outlive the server.
std::vector<std::unique_ptr<grpc::Service>> NodeServices(NodeAgent* agent, const LogReader* logs);

// For support-<worker_id>.sock: the socket says who calls.
std::unique_ptr<grpc::Service> SupportService(NodeAgent* agent, const std::string& worker_id);

}  // namespace torpor::agent
