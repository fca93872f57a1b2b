#pragma once
// Trace context in the W3C form, version 00: "00-<trace id>-<parent id>-<flags>". A request keeps
// its trace id from the router through the apiserver to the operations of node, worker and mover,
// so that one search in the logs of all roles finds everything that it caused.

#include <string>
#include <string_view>

namespace torpor {

bool IsTraceparent(std::string_view text);
// The 32 hex digits; empty when `traceparent` is none.
std::string TraceIdOf(std::string_view traceparent);
// For what nobody asked for: the uuid's digits are the trace id.
std::string TraceparentOfUuid(std::string_view uuid);

// While it lives, log lines of this thread carry `trace_id`. Scopes nest; an empty or invalid
// traceparent changes nothing.
class LogTrace {
 public:
  explicit LogTrace(std::string_view traceparent);
  ~LogTrace();
  LogTrace(const LogTrace&) = delete;
  LogTrace& operator=(const LogTrace&) = delete;

  // The traceparent of this thread; empty when there is none.
  static const std::string& Current();

 private:
  std::string previous_;
};

}  // namespace torpor
