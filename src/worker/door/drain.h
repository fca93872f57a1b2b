#pragma once
// When an actor's connections have drained: the decision of a pause, as a pure function of what is
// known about them.

#include <string>
#include <vector>

#include "base/time.h"

namespace torpor::worker {

struct DrainOptions {
  std::string why = "api";      // For the routers: api, idle, pressure, drain, golden or fork.
  Duration grace{};             // How long requests in flight may go on.
  Duration grace_max{};         // The same while an answer is already flowing.
  bool refuse_if_busy = false;  // Then nothing is closed and the actor is not draining.
};

// A router asked over its control connection that says nothing for so long is decided about by the
// bytes of its connections.
inline constexpr Duration kRouterSilence = std::chrono::seconds(1);
inline constexpr Duration kSilentRouterBusy = std::chrono::seconds(10);
// A connection of somebody without a control connection is between two requests when it owes no
// answer and moved no byte for so long; before a pause that may be called off, the second one.
inline constexpr Duration kQuiet = std::chrono::milliseconds(5);
inline constexpr Duration kQuietBeforeIdlePause = std::chrono::seconds(1);

struct DrainView {
  struct Router {
    enum class State {
      kUnknown,   // It has no control connection.
      kAsked,     // It was told, and has not answered yet.
      kAnswered,  // With the counts below.
      kLost,      // Its control connection ended.
    };
    std::string id;
    State state = State::kUnknown;
    MonotonicTime asked{};
    int inflight = 0;
    int streams = 0;
  };
  struct Flow {
    std::string router;  // Empty: it did not say.
    MonotonicTime last_bytes{};
    bool unanswered = false;  // The last byte went to the guest.
  };
  std::vector<Router> routers;
  std::vector<Flow> flows;  // Open connections into the guest.
};

struct DrainDecision {
  enum class Kind { kWait, kDrained, kBusy };
  Kind kind = Kind::kWait;
  MonotonicTime look_again{};  // Of kWait, when nothing changes before.
};

// `began` is when the drain did. kDrained also says that the grace is over.
DrainDecision DecideDrain(const DrainView& view, const DrainOptions& options, MonotonicTime began,
                          MonotonicTime now);

}  // namespace torpor::worker
