#pragma once
// A route from what the control plane says. Pure functions.

#include "ateapi/ateapi.pb.h"
#include "base/status.h"
#include "router/routes/route.h"

namespace torpor::router {

// What the router needs of a template. The ports: http_port and every wakeup probe's.
struct TemplateHttp {
  int http_port = 80;
  std::vector<int> ports = {80};
  HttpSettings http;
  torpor::v1::IdlePolicy idle_policy;
};
TemplateHttp HttpOf(const ateapi::ActorTemplate& actor_template);

// UNAVAILABLE when the actor is not RUNNING on a worker with an address: it changed meanwhile. The
// generation is the answer's, which names the activation that runs; the actor's own counter may be
// ahead of it after a capture that failed.
StatusOr<Route> RouteOf(const ateapi::ResumeActorResponse& response, const TemplateHttp& http);

}  // namespace torpor::router
