#include "router/answer/reply.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include "router/answer/access_log.h"
#include "router/answer/json.h"
#include "router/answer/metrics.h"
#include "router/answer/server_timing.h"

namespace torpor::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(MapResumeTest, EveryCodeHasAMeaning) {
  struct {
    Code code;
    std::string_view reason;
    std::string_view state;
    int status;
    std::string_view meaning;
    bool retry_after;
  } cases[] = {
      {Code::kNotFound, "ACTOR_NOT_FOUND", "", 404, "ACTOR_NOT_FOUND", false},
      {Code::kInvalidArgument, "FIELD_INVALID", "", 400, "BAD_REQUEST", false},
      {Code::kOutOfRange, "", "", 400, "BAD_REQUEST", false},
      {Code::kUnauthenticated, "UNAUTHENTICATED", "", 401, "UNAUTHENTICATED", false},
      {Code::kPermissionDenied, "NOT_ALLOWED", "", 403, "NOT_ALLOWED", false},
      {Code::kPermissionDenied, "RESERVED_ATESPACE", "", 403, "NOT_ALLOWED", false},
      {Code::kResourceExhausted, "NO_CAPACITY", "", 503, "NO_CAPACITY", true},
      {Code::kResourceExhausted, "DISK_FULL", "", 503, "NO_CAPACITY", true},
      {Code::kResourceExhausted, "RATE_LIMITED", "", 429, "RATE_LIMITED", true},
      {Code::kAborted, "OPERATION_IN_PROGRESS", "", 503, "STILL_WAKING", true},
      {Code::kAborted, "SUPERSEDED", "", 503, "STILL_WAKING", true},
      {Code::kDeadlineExceeded, "DEADLINE_EXCEEDED", "", 503, "STILL_WAKING", true},
      {Code::kCancelled, "", "", 503, "STILL_WAKING", true},
      {Code::kDataLoss, "SNAPSHOT_CORRUPT", "", 503, "SNAPSHOT_LOST", false},
      {Code::kDataLoss, "LOCAL_SNAPSHOT_GONE", "", 503, "SNAPSHOT_LOST", false},
      {Code::kFailedPrecondition, "ACTOR_CRASHED", "", 503, "ACTOR_CRASHED", false},
      {Code::kFailedPrecondition, "TEMPLATE_NOT_FOUND", "", 503, "NOT_STARTABLE", false},
      {Code::kFailedPrecondition, "FALLBACK_REFUSED", "", 503, "NOT_STARTABLE", false},
      {Code::kFailedPrecondition, "RUNTIME_INCOMPATIBLE", "", 503, "NOT_STARTABLE", false},
      {Code::kFailedPrecondition, "SNAPSHOT_UNREACHABLE", "", 503, "NOT_STARTABLE", false},
      {Code::kFailedPrecondition, "WRONG_STATE", "ACTOR_STATE_DELETING", 503, "ACTOR_DELETING",
       false},
      {Code::kFailedPrecondition, "WRONG_STATE", "DELETING", 503, "ACTOR_DELETING", false},
      {Code::kFailedPrecondition, "WRONG_STATE", "REVERTING", 503, "NOT_STARTABLE", false},
      {Code::kAlreadyExists, "ALREADY_EXISTS", "", 503, "NOT_STARTABLE", false},
      {Code::kUnavailable, "", "", 503, "CONTROL_PLANE_UNAVAILABLE", true},
      {Code::kUnavailable, "NODE_UNREACHABLE", "", 503, "CONTROL_PLANE_UNAVAILABLE", true},
      {Code::kInternal, "WORKLOAD_EXITED", "", 503, "ACTOR_CRASHED", false},
      {Code::kInternal, "INTERNAL", "", 503, "CONTROL_PLANE_UNAVAILABLE", true},
      {Code::kInternal, "", "", 503, "CONTROL_PLANE_UNAVAILABLE", true},
      {Code::kUnimplemented, "NOT_IMPLEMENTED", "", 503, "CONTROL_PLANE_UNAVAILABLE", true},
      {Code::kUnknown, "", "", 503, "CONTROL_PLANE_UNAVAILABLE", true},
  };
  for (const auto& c : cases) {
    ResumeMeaning meaning = MapResume(c.code, c.reason, c.state);
    EXPECT_EQ(meaning.status, c.status) << c.reason;
    EXPECT_EQ(meaning.reason, c.meaning) << c.reason;
    EXPECT_EQ(meaning.retry_after_ms.has_value(), c.retry_after) << c.reason;
    if (meaning.retry_after_ms) {
      EXPECT_GE(*meaning.retry_after_ms, 1000);
      EXPECT_LE(*meaning.retry_after_ms, 10'000);
    }
  }
}

TEST(ReplyTest, AFailedResumeKeepsItsCauseAndItsWait) {
  Status status = Error(Code::kResourceExhausted, "NO_CAPACITY", "no worker: 2 full\n1 draining");
  SetRetryAfterMs(status, 3500);
  Reply reply = ReplyForResume(status);
  EXPECT_EQ(reply.cause, "NO_CAPACITY");
  EXPECT_EQ(reply.retry_after_ms, 3500);
  EXPECT_THAT(reply.message, HasSubstr("2 full 1 draining"));
  reply = ReplyForResume(
      Error(Code::kFailedPrecondition, "WRONG_STATE", "no", {{"state", "DELETING"}}));
  EXPECT_EQ(reply.reason, "ACTOR_DELETING");
  reply = ReplyForResume(Error(Code::kDataLoss, "SNAPSHOT_CORRUPT", "bad"));
  EXPECT_THAT(reply.message, HasSubstr("revert"));
  reply = ReplyForResume(absl::UnavailableError("connect to unix:/run/secret.sock failed"));
  EXPECT_THAT(reply.message, Not(HasSubstr("secret")));
}

TEST(ReplyTest, OutcomesOfParking) {
  ParkOutcome outcome{ParkOutcome::Kind::kBudget};
  outcome.queue_position = 3;
  EXPECT_EQ(ReplyForPark(outcome).reason, "STILL_WAKING");
  EXPECT_EQ(ReplyForPark(outcome).queue_position, 3);
  outcome.progress = WakeProgress{"start", "durable", std::chrono::milliseconds(1500)};
  EXPECT_TRUE(ReplyForPark(outcome).progress.has_value());
  outcome.status = Error(Code::kResourceExhausted, "NO_CAPACITY", "");
  EXPECT_EQ(ReplyForPark(outcome).reason, "NO_CAPACITY");
  EXPECT_FALSE(ReplyForPark(outcome).progress.has_value());
  outcome = {ParkOutcome::Kind::kFull};
  outcome.cap = "memory";
  EXPECT_EQ(ReplyForPark(outcome).reason, "PARKING_FULL");
  EXPECT_THAT(ReplyForPark(outcome).message, HasSubstr("memory"));
  EXPECT_EQ(ReplyForPark({ParkOutcome::Kind::kDraining}).reason, "ROUTER_DRAINING");
}

TEST(ReplyTest, RulesBecomeStatuses) {
  EXPECT_EQ(ReplyForRule(Rule::kUriTooLong).status, 414);
  EXPECT_EQ(ReplyForRule(Rule::kHeadTooLarge).status, 431);
  EXPECT_EQ(ReplyForRule(Rule::kTooManyFields).reason, "HEADER_TOO_LARGE");
  EXPECT_EQ(ReplyForRule(Rule::kLengthAndChunked).status, 400);
  EXPECT_THAT(ReplyForRule(Rule::kObsFold).message, HasSubstr("obs_fold"));
}

TEST(ReplyTest, DenialsSayWhatWouldHelp) {
  Reply unknown = ReplyForDenial({false, "who are you"});
  EXPECT_EQ(unknown.status, 401);
  EXPECT_EQ(unknown.reason, "UNAUTHENTICATED");
  EXPECT_EQ(unknown.message, "who are you");
  EXPECT_EQ(unknown.reached_actor, false);
  std::string out;
  RenderReply(unknown, {}, &out);
  EXPECT_THAT(out, HasSubstr("\r\nWWW-Authenticate: Bearer\r\n"));
  Reply known = ReplyForDenial({true, "not yours"});
  EXPECT_EQ(known.status, 403);
  EXPECT_EQ(known.reason, "NOT_ALLOWED");
  out.clear();
  RenderReply(known, {}, &out);
  EXPECT_THAT(out, Not(HasSubstr("WWW-Authenticate")));
  // That the control plane refuses the router is nothing a client's token would change.
  out.clear();
  RenderReply(ReplyForResume(Error(Code::kUnauthenticated, "UNAUTHENTICATED", "no")), {}, &out);
  EXPECT_THAT(out, Not(HasSubstr("WWW-Authenticate")));
}

TEST(ReplyTest, ARateIsExplained) {
  Reply reply = ReplyForRate("atespace", 50, std::chrono::microseconds(20'100));
  EXPECT_EQ(reply.status, 429);
  EXPECT_EQ(reply.reason, "RATE_LIMITED");
  EXPECT_EQ(reply.retry_after_ms, 21) << "rounded up: earlier would be too early";
  EXPECT_EQ(reply.reached_actor, false);
  EXPECT_THAT(reply.message, HasSubstr("50 requests per second for one atespace"));
}

TEST(ReplyTest, IsAProblemDocument) {
  Reply reply;
  reply.status = 503;
  reply.reason = "STILL_WAKING";
  reply.message = "a \"quoted\" \x01 text";
  reply.actor = "demo/a";
  reply.reached_actor = false;
  reply.retry_after_ms = 1001;
  reply.queue_position = 2;
  reply.progress = WakeProgress{"start", "cold boot", std::chrono::microseconds(31'999'900)};
  reply.trace_id = "t";
  std::string out;
  RenderReply(reply, {.close = true, .request_id = "id"}, &out);
  EXPECT_THAT(out, HasSubstr("HTTP/1.1 503 Service Unavailable\r\n"));
  EXPECT_THAT(out, HasSubstr("Retry-After: 2\r\n"));
  EXPECT_THAT(out, HasSubstr("Cache-Control: no-store\r\n"));
  EXPECT_THAT(out, HasSubstr("Connection: close\r\n"));
  std::string body =
      "{\"type\":\"about:blank\",\"title\":\"Service Unavailable\",\"status\":503,"
      "\"reason\":\"STILL_WAKING\",\"message\":\"a \\\"quoted\\\" \\u0001 text\","
      "\"actor\":\"demo/a\",\"reached_actor\":false,\"retry_after_ms\":1001,"
      "\"queue_position\":2,\"progress\":{\"phase\":\"start\",\"source\":\"cold boot\","
      "\"elapsed_ms\":31999},\"trace_id\":\"t\"}\n";
  EXPECT_EQ(out.substr(out.find("\r\n\r\n") + 4), body);
  EXPECT_THAT(out, HasSubstr("Content-Length: " + std::to_string(body.size()) + "\r\n"));
  out.clear();
  RenderReply(reply, {.head_request = true}, &out);
  EXPECT_THAT(out, ::testing::EndsWith("\r\n\r\n"));
  EXPECT_THAT(out, HasSubstr("Content-Length: " + std::to_string(body.size()) + "\r\n"));
}

TEST(ServerTimingTest, NamesEveryPart) {
  std::vector<torpor::v1::Phase> phases(2);
  phases[0].set_name("restore");
  phases[0].set_duration_ms(41.5);
  phases[1].set_name("bad name;");
  Timing timing;
  timing.wake = WakeRole::kTriggered;
  timing.park = std::chrono::microseconds(120'250);
  timing.connect = std::chrono::microseconds(5);
  timing.actor = std::chrono::milliseconds(2);
  timing.router = std::chrono::nanoseconds(61'499);
  EXPECT_EQ(ServerTiming(timing, phases),
            "park;dur=120.250, restore;dur=41.500, connect;dur=0.005, actor;dur=2.000, "
            "router;dur=0.061, wake;desc=\"triggered\"");
  EXPECT_EQ(ServerTiming(Timing(), {}), "wake;desc=\"none\"");
}

TEST(AccessLogTest, WritesWholeJsonLines) {
  int fds[2];
  ASSERT_EQ(pipe(fds), 0);
  {
    AccessLog log(fds[1]);
    AccessRecord record;
    record.method = "GET";
    record.path = "/a\"b";
    record.actor = "demo/a";
    record.status = 200;
    record.reason = "CLIENT_GONE";
    record.request_id = "r";
    record.trace_id = "t1";
    record.wake = WakeRole::kJoined;
    log.Write(record, WallTime(std::chrono::seconds(1)));
    AccessLog off(-1);
    off.Write(record, WallTime());
  }
  close(fds[1]);
  char bytes[1024];
  ssize_t n = read(fds[0], bytes, sizeof(bytes));
  close(fds[0]);
  ASSERT_GT(n, 0);
  std::string line(bytes, static_cast<size_t>(n));
  EXPECT_EQ(line.back(), '\n');
  EXPECT_THAT(line, HasSubstr("\"path\":\"/a\\\"b\""));
  EXPECT_THAT(line, HasSubstr("\"wake\":\"joined\""));
  EXPECT_THAT(line, HasSubstr("\"trace_id\":\"t1\""));
  EXPECT_THAT(line, HasSubstr("\"reason\":\"CLIENT_GONE\""));
}

TEST(MetricsTest, RendersCountersAndHistograms) {
  Metrics metrics;
  metrics.Request(200, "", WakeRole::kNone, std::chrono::milliseconds(3));
  metrics.Request(503, "NO_CAPACITY", WakeRole::kNone, std::chrono::milliseconds(3));
  metrics.BadRequest(Rule::kObsFold);
  metrics.ParkRejected("memory");
  metrics.ResumeRetry(Code::kAborted);
  metrics.RateLimited("address");
  metrics.Parked(ParkResult::kServed, std::chrono::seconds(2));
  Metrics::Gauges gauges;
  gauges.parked = 5;
  std::string text = metrics.Render(gauges);
  for (const char* line : {
           "torpor_router_requests_total{status_class=\"2xx\",reason=\"\"} 1\n",
           "torpor_router_requests_total{status_class=\"5xx\",reason=\"NO_CAPACITY\"} 1\n",
           "torpor_router_request_seconds_bucket{wake=\"none\",le=\"0.0025\"} 0\n",
           "torpor_router_request_seconds_bucket{wake=\"none\",le=\"0.005\"} 2\n",
           "torpor_router_request_seconds_bucket{wake=\"none\",le=\"+Inf\"} 2\n",
           "torpor_router_request_seconds_sum{wake=\"none\"} 0.006000\n",
           "torpor_router_bad_requests_total{rule=\"obs_fold\"} 1\n",
           "torpor_router_park_rejected_total{cap=\"memory\"} 1\n",
           "torpor_router_rate_limited_total{limit=\"address\"} 1\n",
           "torpor_router_resume_retries_total{code=\"ABORTED\"} 1\n",
           "torpor_router_park_seconds_count{outcome=\"served\"} 1\n",
           "torpor_router_parked 5\n",
           "torpor_router_upstream{state=\"idle\"} 0\n",
       }) {
    EXPECT_THAT(text, HasSubstr(line));
  }
}

}  // namespace
}  // namespace torpor::router
