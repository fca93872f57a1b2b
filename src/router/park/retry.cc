#include "router/park/retry.h"

#include <algorithm>
#include <cmath>

namespace torpor::router {

bool IsRetryableResume(const Status& status) {
  switch (status.code()) {
    case Code::kAborted:
    case Code::kUnavailable:
    case Code::kDeadlineExceeded:
    case Code::kCancelled:
      return true;
    case Code::kResourceExhausted: {
      std::string reason = ReasonOf(status);
      return reason == "NO_CAPACITY" || reason == "RATE_LIMITED";
    }
    default:
      return false;
  }
}

Duration RetryDelay(int attempt, double random01, const Status& status) {
  double ceiling_ms = std::min(2000.0, 100.0 * std::pow(1.5, std::min(attempt, 20)));
  double ms = ceiling_ms * random01;
  if (!status.ok()) {
    std::optional<int64_t> asked = RetryAfterMs(status);
    if (asked) ms = std::max(ms, static_cast<double>(std::min<int64_t>(*asked, 60'000)));
  }
  return std::chrono::microseconds(static_cast<int64_t>(ms * 1000));
}

}  // namespace torpor::router
