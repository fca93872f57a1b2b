#include "router/answer/server_timing.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace torpor::router {
namespace {

void Add(std::string* out, std::string_view name, double ms) {
  // Fixed point by hand: this runs for every request.
  auto us = static_cast<int64_t>(std::llround(std::max(0.0, ms) * 1000));
  fmt::format_to(std::back_inserter(*out), FMT_STRING("{};dur={}.{:03}, "), name, us / 1000,
                 us % 1000);
}

bool IsMetricName(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

}  // namespace

std::string_view WakeName(WakeRole role) {
  switch (role) {
    case WakeRole::kNone:
      return "none";
    case WakeRole::kJoined:
      return "joined";
    case WakeRole::kTriggered:
      return "triggered";
  }
  return "none";
}

std::string ServerTiming(const Timing& timing, const std::vector<torpor::v1::Phase>& phases) {
  std::string out;
  if (timing.park) Add(&out, "park", ToMs(*timing.park));
  for (const torpor::v1::Phase& phase : phases) {
    if (IsMetricName(phase.name())) Add(&out, phase.name(), phase.duration_ms());
  }
  if (timing.connect) Add(&out, "connect", ToMs(*timing.connect));
  if (timing.actor) Add(&out, "actor", ToMs(*timing.actor));
  if (timing.router) Add(&out, "router", ToMs(*timing.router));
  out.append("wake;desc=\"").append(WakeName(timing.wake)).append("\"");
  return out;
}

}  // namespace torpor::router
