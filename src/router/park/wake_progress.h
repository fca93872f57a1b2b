#pragma once
// How far a wake has come, as the control plane's open operation tells. Pure functions.

#include <optional>
#include <string>

#include "base/time.h"

namespace torpor::v1 {
class ExplainActorResponse;
}

namespace torpor::router {

struct WakeProgress {
  std::string phase;   // The operation's step in lower case, such as "start".
  std::string source;  // What the actor comes from: local, durable, shared or cold boot.
  Duration elapsed{};  // Since the operation began.
  // The node has to bring something from elsewhere, an image or a snapshot, which may take long for
  // a good reason. How many bytes of it are there is known to the node only.
  bool cold = false;
  // The template says itself how long requests wait.
  bool has_own_budget = false;
};

// Of the newest report, if that operation is a wake under way.
std::optional<WakeProgress> ProgressOf(const torpor::v1::ExplainActorResponse& response);

}  // namespace torpor::router
