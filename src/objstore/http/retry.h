#pragma once
// When a request is worth repeating, and after what pause. Pure functions.

#include <string_view>

#include "base/time.h"

namespace torpor::objstore {

// How a request ended.
struct HttpOutcome {
  int curl_code = 0;
  int status = 0;
  std::string_view code;  // of the answer's XML error, "SlowDown"; empty when there is none
};

enum class Advice {
  kEnd,      // success, or an error that would come again
  kRepeat,   // may pass by itself
  kRefresh,  // the credentials are no longer taken; worth one try with new ones
};
Advice AdviceFor(const HttpOutcome& outcome);
// The store asks for fewer requests.
bool IsThrottled(const HttpOutcome& outcome);

struct RetryRules {
  Duration first_pause = std::chrono::milliseconds(250);  // doubled for each further try
  Duration pause_max = std::chrono::seconds(5);
  // No try begins later than this after the first failure; then the caller decides.
  Duration give_up_after = std::chrono::seconds(30);
};
// The pause before try number `tries` + 1, with `random` from 0 to 1: full jitter, but never less
// than the store asked for (`retry_after`, itself cut to a minute).
Duration RetryPause(const RetryRules& rules, int tries, double random, Duration retry_after);
// The value of a Retry-After field in seconds; 0 when it is none or a date.
Duration ParseRetryAfter(std::string_view text);

}  // namespace torpor::objstore
