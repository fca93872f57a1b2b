#pragma once
// A real control plane over a memory store and a fake node, with its gRPC and JSON listeners.

#include <grpcpp/generic/generic_stub.h>

#include <nlohmann/json.hpp>

#include "api/control_methods.h"
#include "api/http/server.h"
#include "api/service/grpc_service.h"
#include "api/service/log_client.h"
#include "api/testing/fake_node.h"
#include "control/store/memory/memory_store.h"

namespace torpor::api {

// A template and an actor of it in the atespace demo, and the body of a call about that actor.
extern const std::string kTemplate;
extern const std::string kActor;
extern const std::string kRef;

// The reason of an error answer; empty for a success.
std::string ReasonIn(const nlohmann::json& answer);

// Two of them on fake clocks do the same when they are asked the same.
class World {
 public:
  explicit World(Clock* clock);
  ~World();

  FakeNode* node() { return &node_; }
  control::ControlPlane* control() { return control_.get(); }
  const std::string& lease_id() const { return lease_id_; }
  // Atespace, template and actor.
  void MakeActor();
  // As a stop of the apiserver does, before its listeners close.
  void StopControl();

  // The answer in JSON, error or response, without the encoded form of details.
  nlohmann::json OverGrpc(const std::string& path, const std::string& body, Duration timeout);
  nlohmann::json OverJson(const std::string& path, const std::string& body, Duration timeout);

 private:
  Clock* const clock_;
  SequentialIds ids_;
  control::MemoryStore store_;
  FakeNode node_;
  EmptyStorage storage_;
  LogClient logs_;
  Dispatcher dispatcher_{2};
  std::unique_ptr<control::ControlPlane> control_;
  TokenAuthenticator token_;
  GrpcService service_{&dispatcher_, &token_, clock_};
  HttpHandler handler_{&dispatcher_, &token_, {}, clock_};
  std::string lease_id_;
  std::unique_ptr<GrpcServer> grpc_;
  std::unique_ptr<HttpServer> http_;
  std::unique_ptr<grpc::GenericStub> stub_;
};

}  // namespace torpor::api
