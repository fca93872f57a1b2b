#pragma once
// The lifecycle calls that a user makes. Implemented over gRPC (grpc_control.h) and by a fake.

#include <string>

#include "base/status.h"
#include "bench/outcome.h"

namespace torpor::bench {

struct ActorView {
  std::string uid;
  int64_t generation = 0;
  bool resumed = true;  // false: Resume found it running
  std::string address;  // of the worker's door; set while the actor runs
};

// Thread-safe. Every call bounds itself; what its operation recorded about phases is in the outcome
// and not in its time.
class ActorControl {
 public:
  virtual ~ActorControl() = default;
  virtual Outcome Create(const std::string& actor) = 0;
  virtual Outcome Resume(const std::string& actor, ActorView* view) = 0;
  virtual Outcome Pause(const std::string& actor, ActorView* view) = 0;
  virtual Outcome Suspend(const std::string& actor, ActorView* view) = 0;
  // In any state.
  virtual Outcome Delete(const std::string& actor) = 0;
  // Phases of the last wake, for an actor that was woken by a request.
  virtual std::vector<torpor::v1::Phase> PhasesOfLastWake(const std::string& actor) = 0;
  virtual bool IsCrashed(const std::string& actor) = 0;
};

}  // namespace torpor::bench
