#pragma once
// What `torpor up` and `torpor down` ask of the apiserver of their own machine, over its socket.

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"

namespace torpor::up {

// Blocking; belongs to one thread.
class LocalClient {
 public:
  explicit LocalClient(const std::string& api_socket);
  ~LocalClient();

  // OK when the apiserver answers and a worker that registered after `since` takes actors: the
  // record of an earlier run says nothing. UNAVAILABLE says what is missing.
  Status CheckReady(WallTime since);
  // OK also when it exists.
  Status MakeAtespace(const std::string& name);

  struct Outcome {
    std::string actor;  // <atespace>/<name>
    Status status;
  };
  // Suspends every running actor, all at once; returns when each has ended or `deadline` passed.
  std::vector<Outcome> SuspendAll(MonotonicTime deadline);

 private:
  struct Stubs;
  std::unique_ptr<Stubs> stubs_;
};

}  // namespace torpor::up
