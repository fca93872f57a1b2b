#pragma once
// Answers the router itself makes: problem+json with a reason. Pure functions, any thread.

#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "router/admit/authorizer.h"
#include "router/h1/rules.h"
#include "router/park/parking_lot.h"

namespace torpor::router {

struct Reply {
  int status = 500;
  std::string_view reason;                // UPPER_SNAKE, one of router.md's table.
  std::string message;                    // What happened and what to do.
  std::string cause;                      // The API's reason, if one is behind it.
  std::string actor;                      // <atespace>/<actor>, if known.
  std::optional<bool> reached_actor;      // Whether a byte of the request can have reached it.
  std::optional<int64_t> retry_after_ms;  // Absent: waiting alone does not help.
  int queue_position = 0;                 // From 1; 0 = none.
  std::optional<WakeProgress> progress;   // Of STILL_WAKING, if the wake is known to be under way.
  std::string trace_id;
  bool wants_token = false;  // 401: a bearer token would help.
};

// What a failed resume means for the client: table by code and reason. `state` is the metadata of
// WRONG_STATE.
struct ResumeMeaning {
  int status;
  std::string_view reason;
  std::optional<int64_t> retry_after_ms;
};
ResumeMeaning MapResume(Code code, std::string_view reason, std::string_view state = {});

Reply ReplyForResume(const Status& status);
Reply ReplyForPark(const ParkOutcome& outcome);
Reply ReplyForRule(Rule rule);
Reply ReplyForDenial(const Denial& denial);
// More than `per_second` requests came from, or for, one `of`.
Reply ReplyForRate(std::string_view of, int64_t per_second, Duration wait);

std::string_view StatusText(int status);

struct RenderOptions {
  bool head_request = false;
  bool close = false;
  bool http11 = true;
  std::string_view request_id;     // Empty: none.
  std::string_view server_timing;  // Empty: none.
};
// The whole message, head and body.
void RenderReply(const Reply& reply, const RenderOptions& options, std::string* out);

}  // namespace torpor::router
