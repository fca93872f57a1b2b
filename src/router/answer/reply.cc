#include "router/answer/reply.h"

#include <algorithm>

#include "router/answer/json.h"

namespace torpor::router {
namespace {

constexpr int64_t kShortly = 1000;
constexpr int64_t kSoon = 2000;
constexpr int64_t kLater = 5000;

std::string OneLine(std::string_view text) {
  std::string out(text.substr(0, 2000));
  std::replace_if(out.begin(), out.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  return out;
}

int64_t WholeSeconds(int64_t ms) { return std::max<int64_t>(1, (ms + 999) / 1000); }

}  // namespace

ResumeMeaning MapResume(Code code, std::string_view reason, std::string_view state) {
  switch (code) {
    case Code::kNotFound:
      return {404, "ACTOR_NOT_FOUND", {}};
    case Code::kInvalidArgument:
    case Code::kOutOfRange:
      return {400, "BAD_REQUEST", {}};
    case Code::kUnauthenticated:
      return {401, "UNAUTHENTICATED", {}};
    case Code::kPermissionDenied:
      return {403, "NOT_ALLOWED", {}};
    case Code::kResourceExhausted:
      if (reason == "RATE_LIMITED") return {429, "RATE_LIMITED", kShortly};
      return {503, "NO_CAPACITY", kLater};
    case Code::kAborted:
    case Code::kDeadlineExceeded:
    case Code::kCancelled:
      return {503, "STILL_WAKING", kSoon};
    case Code::kDataLoss:
      return {503, "SNAPSHOT_LOST", {}};
    case Code::kFailedPrecondition:
    case Code::kAlreadyExists:
      if (reason == "ACTOR_CRASHED") return {503, "ACTOR_CRASHED", {}};
      if (reason == "WRONG_STATE" && state.find("DELETING") != std::string_view::npos) {
        return {503, "ACTOR_DELETING", {}};
      }
      return {503, "NOT_STARTABLE", {}};
    case Code::kInternal:
      // A wake that failed inside the sandbox carries the crash reason.
      if (!reason.empty() && reason != "INTERNAL") return {503, "ACTOR_CRASHED", {}};
      return {503, "CONTROL_PLANE_UNAVAILABLE", kLater};
    default:
      return {503, "CONTROL_PLANE_UNAVAILABLE", kSoon};
  }
}

Reply ReplyForResume(const Status& status) {
  std::string cause = ReasonOf(status);
  ErrorMetadata metadata = MetadataOf(status);
  ResumeMeaning meaning = MapResume(status.code(), cause, metadata["state"]);
  Reply reply;
  reply.status = meaning.status;
  reply.reason = meaning.reason;
  reply.cause = cause;
  reply.message = OneLine({status.message().data(), status.message().size()});
  // Errors of the transport name sockets of this machine, which are not the client's business.
  if (cause.empty()) reply.message = "the control plane did not answer";
  reply.retry_after_ms = meaning.retry_after_ms;
  std::optional<int64_t> asked = RetryAfterMs(status);
  if (reply.retry_after_ms && asked) {
    reply.retry_after_ms = std::clamp<int64_t>(*asked, 1000, 10'000);
  }
  if (meaning.reason == "ACTOR_CRASHED" || meaning.reason == "SNAPSHOT_LOST") {
    reply.message += " (revert the actor to return to its last durable snapshot)";
  }
  return reply;
}

Reply ReplyForPark(const ParkOutcome& outcome) {
  Reply reply;
  switch (outcome.kind) {
    case ParkOutcome::Kind::kDraining:
      reply.status = 503;
      reply.reason = "ROUTER_DRAINING";
      reply.message = "this router is shutting down";
      reply.retry_after_ms = kShortly;
      break;
    case ParkOutcome::Kind::kFull:
      reply.status = 503;
      reply.reason = "PARKING_FULL";
      reply.message =
          fmt::format("too many requests wait for actors to wake (limit: {})", outcome.cap);
      reply.retry_after_ms = kSoon;
      break;
    case ParkOutcome::Kind::kBudget:
      if (!outcome.status.ok()) {
        reply = ReplyForResume(outcome.status);
      } else {
        reply.status = 503;
        reply.reason = "STILL_WAKING";
        reply.message = "the actor did not wake in time; its wake goes on";
        reply.retry_after_ms = kSoon;
      }
      break;
    default:
      reply = ReplyForResume(outcome.status);
      break;
  }
  reply.reached_actor = false;
  reply.queue_position = outcome.queue_position;
  if (reply.reason == "STILL_WAKING") reply.progress = outcome.progress;
  return reply;
}

Reply ReplyForRule(Rule rule) {
  Reply reply;
  reply.status = 400;
  reply.reason = "BAD_REQUEST";
  reply.message = fmt::format("the request breaks HTTP/1.1 (rule {})", RuleName(rule));
  reply.reached_actor = false;
  if (rule == Rule::kUriTooLong) {
    reply.status = 414;
    reply.reason = "URI_TOO_LONG";
    reply.message = "the request target is too long";
  } else if (rule == Rule::kHeadTooLarge || rule == Rule::kFieldTooLarge ||
             rule == Rule::kTooManyFields) {
    reply.status = 431;
    reply.reason = "HEADER_TOO_LARGE";
    reply.message = fmt::format("the request head is too large (rule {})", RuleName(rule));
  } else if (rule == Rule::kMethodRefused) {
    reply.message = "CONNECT and TRACE are not served";
  }
  return reply;
}

Reply ReplyForDenial(const Denial& denial) {
  Reply reply;
  reply.status = denial.known ? 403 : 401;
  reply.reason = "UNAUTHENTICATED";
  if (denial.known) reply.reason = "NOT_ALLOWED";
  reply.message = denial.message;
  reply.reached_actor = false;
  reply.wants_token = !denial.known;
  return reply;
}

Reply ReplyForRate(std::string_view of, int64_t per_second, Duration wait) {
  Reply reply;
  reply.status = 429;
  reply.reason = "RATE_LIMITED";
  reply.message =
      fmt::format("this router takes at most {} requests per second for one {}", per_second, of);
  reply.reached_actor = false;
  reply.retry_after_ms = std::chrono::ceil<std::chrono::milliseconds>(wait).count();
  return reply;
}

std::string_view StatusText(int status) {
  switch (status) {
    case 200:
      return "OK";
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Content Too Large";
    case 414:
      return "URI Too Long";
    case 429:
      return "Too Many Requests";
    case 431:
      return "Request Header Fields Too Large";
    case 502:
      return "Bad Gateway";
    case 503:
      return "Service Unavailable";
    case 504:
      return "Gateway Timeout";
    default:
      return "Error";
  }
}

void RenderReply(const Reply& reply, const RenderOptions& options, std::string* out) {
  std::string body;
  JsonLine json(&body);
  json.Text("type", "about:blank");
  json.Text("title", StatusText(reply.status));
  json.Number("status", reply.status);
  json.Text("reason", reply.reason);
  if (!reply.cause.empty()) json.Text("cause", reply.cause);
  json.Text("message", reply.message);
  if (!reply.actor.empty()) json.Text("actor", reply.actor);
  if (reply.reached_actor) json.Bool("reached_actor", *reply.reached_actor);
  if (reply.retry_after_ms) json.Number("retry_after_ms", *reply.retry_after_ms);
  if (reply.queue_position > 0) json.Number("queue_position", reply.queue_position);
  if (reply.progress) {
    json.Object("progress", [&](JsonLine* progress) {
      progress->Text("phase", reply.progress->phase);
      if (!reply.progress->source.empty()) progress->Text("source", reply.progress->source);
      progress->Number("elapsed_ms", static_cast<int64_t>(ToMs(reply.progress->elapsed)));
    });
  }
  if (!reply.trace_id.empty()) json.Text("trace_id", reply.trace_id);
  json.Close();
  body += "\n";

  auto to = std::back_inserter(*out);
  fmt::format_to(to, "HTTP/1.1 {} {}\r\nContent-Type: application/problem+json\r\n", reply.status,
                 StatusText(reply.status));
  fmt::format_to(to, "Content-Length: {}\r\nCache-Control: no-store\r\ntorpor-reason: {}\r\n",
                 body.size(), reply.reason);
  if (reply.retry_after_ms) {
    fmt::format_to(to, "Retry-After: {}\r\n", WholeSeconds(*reply.retry_after_ms));
  }
  if (reply.wants_token) out->append("WWW-Authenticate: Bearer\r\n");
  if (!options.request_id.empty()) fmt::format_to(to, "x-request-id: {}\r\n", options.request_id);
  if (!options.server_timing.empty()) {
    fmt::format_to(to, "Server-Timing: {}\r\n", options.server_timing);
  }
  if (options.close) {
    out->append("Connection: close\r\n");
  } else if (!options.http11) {
    out->append("Connection: keep-alive\r\n");
  }
  out->append("\r\n");
  if (!options.head_request) out->append(body);
}

}  // namespace torpor::router
