#pragma once
// Readiness: one HTTP GET that must be answered 200, tried again until then.
//
// A blocking call of the operation that waits for it; needs no thread.

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "worker/door/route.h"

namespace torpor::worker {

struct HttpProbe {
  std::string path = "/";
  int port = 80;
};

struct ProbeReport {
  int attempts = 0;
  // Why the last failed attempt failed, for people; one that the deadline cut short counts only
  // when there was no other.
  std::string last_problem;
};

// First attempt at once, then 1 ms later, doubling up to 20 ms. A refused or reset connection, a
// status other than 200 and an answer that does not come are all "not yet". Ends early when
// one of `wake_fds` becomes readable.
//
// Errors: INTERNAL WORKLOAD_NOT_READY naming the last problem; CANCELLED CANCELLED when
// woken.
Status WaitUntilReady(const HttpProbe& probe, const DialFunction& dial, MonotonicTime deadline,
                      const std::vector<int>& wake_fds, Clock* clock, ProbeReport* report);

}  // namespace torpor::worker
