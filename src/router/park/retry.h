#pragma once
// When a failed resume is tried again, and after how long. Pure functions.

#include "base/status.h"
#include "base/time.h"

namespace torpor::router {

bool IsRetryableResume(const Status& status);

// Attempt 0 is the first retry: 100 ms, x1.5 each time, at most 2 s; of that a uniformly random
// part (`random01` in [0, 1)), so that many waiters do not come at once. What the server asked for
// (`retry_after_ms` of the status) is a lower bound.
Duration RetryDelay(int attempt, double random01, const Status& status);

}  // namespace torpor::router
