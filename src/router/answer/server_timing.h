#pragma once
// The Server-Timing field: where the time of one request went. Pure functions.

#include <optional>
#include <string>
#include <vector>

#include "base/time.h"
#include "router/park/wake_report.h"

namespace torpor::router {

struct Timing {
  WakeRole wake = WakeRole::kNone;
  std::optional<Duration> park;     // Only when the request waited.
  std::optional<Duration> connect;  // Only when a connection was made for it.
  std::optional<Duration>
      actor;  // From the request's last byte passed on to the first of the answer.
  std::optional<Duration> router;  // The router's own part.
};

std::string_view WakeName(WakeRole role);
// `park;dur=12.3, place;dur=0.4, ..., wake;desc="triggered"`, in milliseconds.
std::string ServerTiming(const Timing& timing, const std::vector<torpor::v1::Phase>& phases);

}  // namespace torpor::router
