#pragma once
// The public services on gRPC: one generic handler over the Dispatcher, so that no method needs
// code here. Every unary call ends with the trailer x-server-elapsed-us.
//
// Thread-safe. Must outlive the servers that serve it; the dispatcher and the authenticator must
// outlive it.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "api/auth.h"
#include "api/dispatcher.h"
#include "base/status.h"
#include "base/time.h"

namespace grpc {
class CallbackGenericService;
class Server;
class ServerBuilder;
}  // namespace grpc

namespace torpor::api {

class GrpcService {
 public:
  // `token` null: the transport has checked who the peer is.
  GrpcService(Dispatcher* dispatcher, const TokenAuthenticator* token, Clock* clock);
  ~GrpcService();
  // Adds the services and the limits of public messages. For one thread, before calls come.
  void AddTo(grpc::ServerBuilder* builder);

 private:
  Dispatcher* const dispatcher_;
  const TokenAuthenticator* const token_;
  Clock* const clock_;
  // One per server: gRPC ties each to the first that it was added to.
  std::vector<std::unique_ptr<grpc::CallbackGenericService>> generic_;
};

// A TCP listener for it.
class GrpcServer {
 public:
  // `listen` is `address:port`, port 0 = any free one. ALREADY_EXISTS when it cannot be bound.
  static StatusOr<std::unique_ptr<GrpcServer>> Start(const std::string& listen,
                                                     GrpcService* service);
  ~GrpcServer();  // Stop()
  GrpcServer(const GrpcServer&) = delete;
  GrpcServer& operator=(const GrpcServer&) = delete;

  int port() const { return port_; }
  // Takes no new call, lets those under way end until `grace` has passed, cancels the rest.
  void Stop(Duration grace = std::chrono::seconds(1));

 private:
  GrpcServer(std::unique_ptr<grpc::Server> server, int port);

  std::unique_ptr<grpc::Server> server_;
  const int port_;
};

}  // namespace torpor::api
