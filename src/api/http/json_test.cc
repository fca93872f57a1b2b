#include "api/http/json.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/testing/requests.h"
#include "ateapi/ateapi.pb.h"
#include "base/testing/matchers.h"
#include "google/rpc/error_details.pb.h"

namespace torpor::api {
namespace {

using testing_requests::ViolatedFields;

TEST(JsonTest, BothSpellingsOfNamesAreRead) {
  ateapi::CreateActorRequest request;
  ASSERT_OK(
      ParseJson(R"({"actor": {"actorTemplate": {"name": "a"}, "worker_selector": {}}})", &request));
  EXPECT_EQ(request.actor().actor_template().name(), "a");
  EXPECT_TRUE(request.actor().has_worker_selector());
}

TEST(JsonTest, AnEmptyBodyIsAnEmptyMessage) {
  ateapi::ListActorsRequest request;
  EXPECT_OK(ParseJson("", &request));
  EXPECT_OK(ParseJson(" \r\n", &request));
}

TEST(JsonTest, OutputForm) {
  ateapi::Actor actor;
  actor.mutable_metadata()->set_version(7);
  actor.mutable_metadata()->mutable_create_time()->set_seconds(0);
  actor.mutable_status()->set_state(ateapi::ACTOR_STATE_RUNNING);
  ASSERT_OK_AND_ASSIGN(std::string json, PrintJson(actor));
  EXPECT_EQ(json, R"({"metadata":{"version":"7","createTime":"1970-01-01T00:00:00Z"},)"
                  R"("status":{"state":"ACTOR_STATE_RUNNING"}})");
}

TEST(JsonTest, AnUnknownKeyIsNamed) {
  struct Case {
    const char* json;
    const char* field;
  };
  for (const Case& c : {Case{R"({"foo": 1})", "foo"},
                        Case{R"({"actor": {"metadata": {"nam": "x"}}})", "actor.metadata.nam"}}) {
    ateapi::CreateActorRequest request;
    Status status = ParseJson(c.json, &request);
    EXPECT_THAT(status, HasReason(Code::kInvalidArgument, "UNKNOWN_FIELD")) << c.json;
    EXPECT_EQ(ViolatedFields(status), std::vector<std::string>{c.field});
  }
}

TEST(JsonTest, AWrongValueIsNamed) {
  struct Case {
    const char* json;
    const char* field;
  };
  for (const Case& c : {Case{R"({"actor": {"metadata": {"name": 5}}})", "actor.metadata.name"},
                        Case{R"({"actor": {"status": {"state": "FOO"}}})", "actor.status.state"},
                        Case{R"({"actor": {"idlePolicy": {"pauseAfter": "5"}}})",
                             "actor.idle_policy.pause_after"}}) {
    ateapi::CreateActorRequest request;
    Status status = ParseJson(c.json, &request);
    EXPECT_THAT(status, HasReason(Code::kInvalidArgument, "FIELD_INVALID")) << c.json;
    EXPECT_EQ(ViolatedFields(status), std::vector<std::string>{c.field});
  }
}

TEST(JsonTest, BrokenBodiesAreRefused) {
  for (const char* json : {"{", "[1]", "\"x\"", "{} {}", "null", "{\"actor\":", "\xff\xfe"}) {
    ateapi::CreateActorRequest request;
    EXPECT_THAT(ParseJson(json, &request), HasReason(Code::kInvalidArgument, "FIELD_INVALID"))
        << json;
  }
}

TEST(JsonTest, NestingIsBounded) {
  auto nested = [](int depth) {
    return R"({"actor": )" + std::string(static_cast<size_t>(depth - 1), '[');
  };
  ateapi::CreateActorRequest request;
  EXPECT_THAT(ParseJson(nested(65), &request), MessageHas("nested deeper"));
  EXPECT_THAT(ParseJson(nested(1000000), &request), MessageHas("nested deeper"));
  EXPECT_THAT(ParseJson(nested(64), &request), HasCode(Code::kInvalidArgument));
  EXPECT_OK(ParseJson(R"({"actor": {"metadata": {"name": ")" + std::string(100, '[') + R"("}}})",
                      &request));
}

TEST(JsonTest, ErrorsCarryTheirDetails) {
  Status status = Error(Code::kFailedPrecondition, "WRONG_STATE", "resume it", {{"state", "X"}});
  SetRetryAfterMs(status, 250);
  auto json = nlohmann::json::parse(ErrorJson(status));
  EXPECT_EQ(json["code"], "failed_precondition");
  EXPECT_EQ(json["message"], "resume it");
  bool seen = false;
  for (const auto& detail : json["details"]) {
    EXPECT_TRUE(detail["value"].is_string());
    EXPECT_EQ(detail["value"].get<std::string>().find('='), std::string::npos);
    if (detail["type"] != "google.rpc.ErrorInfo") continue;
    seen = true;
    EXPECT_EQ(detail["debug"]["reason"], "WRONG_STATE");
    EXPECT_EQ(detail["debug"]["metadata"]["state"], "X");
  }
  EXPECT_TRUE(seen);
}

TEST(JsonTest, AnErrorWithoutReasonGetsOne) {
  auto json = nlohmann::json::parse(ErrorJson(absl::InternalError("boom \xff")));
  EXPECT_EQ(json["details"][0]["debug"]["reason"], "INTERNAL");
}

TEST(JsonTest, HttpStatusTable) {
  EXPECT_EQ(HttpStatus(Code::kInvalidArgument), 400);
  EXPECT_EQ(HttpStatus(Code::kFailedPrecondition), 400);
  EXPECT_EQ(HttpStatus(Code::kOutOfRange), 400);
  EXPECT_EQ(HttpStatus(Code::kUnauthenticated), 401);
  EXPECT_EQ(HttpStatus(Code::kPermissionDenied), 403);
  EXPECT_EQ(HttpStatus(Code::kNotFound), 404);
  EXPECT_EQ(HttpStatus(Code::kAlreadyExists), 409);
  EXPECT_EQ(HttpStatus(Code::kAborted), 409);
  EXPECT_EQ(HttpStatus(Code::kResourceExhausted), 429);
  EXPECT_EQ(HttpStatus(Code::kCancelled), 499);
  EXPECT_EQ(HttpStatus(Code::kDeadlineExceeded), 504);
  EXPECT_EQ(HttpStatus(Code::kUnknown), 500);
  EXPECT_EQ(HttpStatus(Code::kInternal), 500);
  EXPECT_EQ(HttpStatus(Code::kDataLoss), 500);
  EXPECT_EQ(HttpStatus(Code::kUnimplemented), 501);
  EXPECT_EQ(HttpStatus(Code::kUnavailable), 503);
}

}  // namespace
}  // namespace torpor::api
