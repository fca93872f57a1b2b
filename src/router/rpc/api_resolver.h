#pragma once
// The control plane over gRPC: ActorResolver and ActivityReporter. Calls run on gRPC's threads.

#include <grpcpp/channel.h>

#include <memory>

#include "base/time.h"
#include "router/idle/activity.h"
#include "router/park/resolver.h"

namespace torpor::router {

// `api` serves ateapi.Control and torpor.v1.Ops. The destructor cancels what is under way and
// returns when every callback has run. A cancelled resume goes on in the control plane.
std::unique_ptr<ActorResolver> MakeApiResolver(std::shared_ptr<grpc::Channel> api, Clock* clock);

// `registry` serves torpor.v1.RouterSupport. One report is under way at a time; a newer one that
// comes meanwhile is merged with the next.
std::unique_ptr<ActivityReporter> MakeActivityReporter(std::shared_ptr<grpc::Channel> registry);

}  // namespace torpor::router
