#pragma once
// Where an actor is and how to speak to it. Immutable once made; shared between threads.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/time.h"

namespace torpor::router {

class ActivityCell;

// What the template says about HTTP; unset fields take the router's defaults.
struct HttpSettings {
  std::optional<Duration> park_budget;
  std::optional<Duration> first_byte_timeout;   // 0 = none
  std::optional<Duration> stream_idle_timeout;  // 0 = none
  int64_t max_body_bytes = 0;                   // 0 = unlimited
};

struct Route {
  std::string uid;
  int64_t generation = 0;
  std::string door;  // `unix:<path>` or `ip:port`
  int http_port = 80;
  std::vector<int> ports;  // Declared by the template, http_port among them.
  HttpSettings http;
  Duration idle_limit{};  // Without activity the actor is put to sleep after it; 0 = never.
  // When this activation woke, if the answer said so: a program may need a moment to listen.
  MonotonicTime woke_at{};
  std::shared_ptr<ActivityCell> activity;  // Of this uid and generation; set for cached routes.
};

using RoutePtr = std::shared_ptr<const Route>;

}  // namespace torpor::router
