#pragma once
// The HTTP data plane: takes requests for actors, wakes them, passes bytes both ways.
//
//   RouterOptions options;
//   ASSIGN_OR_RETURN(auto router, Router::Start(options, {&resolver, &reporter, Clock::Real()}));
//   ... router->Shutdown();
//
// Own threads: one event loop each, listening with SO_REUSEPORT; a connection stays on its thread.
// The parts are borrowed. The resolver and the reporter must stop calling back before the router is
// destroyed; they may do so after Shutdown.

#include <memory>

#include "base/status.h"
#include "router/admit/authorizer.h"
#include "router/idle/activity.h"
#include "router/listener/options.h"
#include "router/park/resolver.h"

namespace torpor::router {

class Router {
 public:
  struct Parts {
    ActorResolver* resolver = nullptr;
    ActivityReporter* reporter = nullptr;  // Null: nobody is told.
    Clock* clock = Clock::Real();
    Authorizer* authorizer = nullptr;  // Null: who reaches a listener may reach every actor.
  };

  // Listens when it returns. INVALID_ARGUMENT for addresses that are none; other codes from
  // bind(2) and listen(2) with the address in the message.
  static StatusOr<std::unique_ptr<Router>> Start(RouterOptions options, Parts parts);
  virtual ~Router() = default;

  // Stops listening, answers parked requests with ROUTER_DRAINING, lets exchanges under way end for
  // up to shutdown_grace, then closes what is left. Blocks. Repeatable.
  virtual void Shutdown() = 0;
  // The port of the first listener, and of the admin listener (0 = none).
  virtual int port() const = 0;
  virtual int admin_port() const = 0;
};

}  // namespace torpor::router
