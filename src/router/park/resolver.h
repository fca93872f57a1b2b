#pragma once
// The one thing the router asks of the control plane: bring an actor up and say where it is.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "router/park/wake_progress.h"
#include "router/routes/route.h"
#include "router/target/target.h"
#include "torpor/v1/extensions.pb.h"

namespace torpor::router {

// Thread-safe. Callbacks run on any thread, once, possibly before the call returns.
class ActorResolver {
 public:
  struct Answer {
    RoutePtr route;     // Without an activity cell.
    bool woke = false;  // False: it was running already.
    std::string op_id;  // Of the wake.
  };

  virtual ~ActorResolver() = default;
  // ResumeActor that never falls back to an older generation. With `wait_for_capacity` the call
  // queues at the server instead of failing with NO_CAPACITY. The operation that it begins belongs
  // to the trace of `traceparent`, which may be empty.
  virtual void Resume(const ActorKey& key, Duration wait_for_capacity,
                      const std::string& traceparent,
                      std::function<void(StatusOr<Answer>)> done) = 0;
  // The wake of the actor that is under way in the control plane; none: nothing is.
  virtual void Progress(const ActorKey& key,
                        std::function<void(StatusOr<std::optional<WakeProgress>>)> done) = 0;
  virtual void Phases(const ActorKey& key, const std::string& op_id,
                      std::function<void(StatusOr<std::vector<torpor::v1::Phase>>)> done) = 0;
};

}  // namespace torpor::router
