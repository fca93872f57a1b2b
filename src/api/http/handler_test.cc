#include "api/http/handler.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "api/testing/recording_reply.h"
#include "ateapi/ateapi.pb.h"
#include "base/testing/matchers.h"
#include "torpor/v1/ops.pb.h"

namespace torpor::api {
namespace {

constexpr char kToken[] = "0123456789abcdef";
constexpr char kGetActor[] = "/ateapi.Control/GetActor";
constexpr char kBody[] = R"({"actor": {"atespace": "demo", "name": "a"}})";

class HandlerTest : public testing::Test {
 protected:
  HandlerTest() {
    dispatcher_.Quick<ateapi::GetActorRequest, ateapi::Actor>(
        kGetActor, [](const ateapi::GetActorRequest& request) -> StatusOr<ateapi::Actor> {
          if (request.actor().name() == "missing") {
            Status status = Error(Code::kNotFound, "ACTOR_NOT_FOUND", "no such actor");
            SetRetryAfterMs(status, 1200);
            return status;
          }
          ateapi::Actor actor;
          actor.mutable_metadata()->set_name(request.actor().name());
          return actor;
        });
    dispatcher_.Waiting<ateapi::ResumeActorRequest, ateapi::ResumeActorResponse>(
        "/ateapi.Control/ResumeActor",
        [this](const ateapi::ResumeActorRequest&, const Call& call, auto done) {
          deadline_ = call.deadline;
          resume_ = done;
        });
    dispatcher_.Streaming<torpor::v1::ReadLogsRequest>(
        "/torpor.v1.Ops/ReadLogs",
        [this](const auto&, const Call&, auto stream) { logs_ = stream; });
  }

  static HttpRequest Request(const std::string& target = kGetActor,
                             const std::string& body = kBody) {
    HttpRequest request;
    request.method = "POST";
    request.target = target;
    request.headers = {{"host", "127.0.0.1:7701"},
                       {"content-type", "application/json"},
                       {"authorization", std::string("Bearer ") + kToken}};
    request.body = body;
    return request;
  }
  static void Set(HttpRequest* request, const std::string& name, const std::string& value) {
    request->headers.erase(name);
    request->headers.emplace(name, value);
  }
  // 0 = the request is not refused.
  int Refusal(const HttpRequest& request) const {
    auto refusal = handler_.Refuse(request);
    return refusal ? refusal->status : 0;
  }
  std::shared_ptr<RecordingReply> Handle(HttpRequest request) const {
    auto reply = std::make_shared<RecordingReply>();
    handler_.Handle(std::move(request), reply);
    return reply;
  }

  FakeClock clock_;
  Dispatcher dispatcher_{1};
  TokenAuthenticator token_{kToken, "/dir/token"};
  HttpHandler handler_{
      &dispatcher_,
      &token_,
      {.hosts = {"api.example.com"}, .allowed_origins = {"https://console.example"}},
      &clock_};
  MonotonicTime deadline_;
  std::function<void(StatusOr<ateapi::ResumeActorResponse>)> resume_;
  std::shared_ptr<ResponseStream> logs_;
};

TEST_F(HandlerTest, HostRules) {
  struct Case {
    const char* host;
    int refusal;
  };
  for (const Case& c :
       {Case{"127.0.0.1:7701", 0}, Case{"10.1.2.3", 0}, Case{"[::1]:7701", 0},
        Case{"localhost:7701", 0}, Case{"LOCALHOST", 0}, Case{"api.example.com:443", 0},
        Case{"evil.example.com", 403}, Case{"localhost.evil.com", 403},
        Case{"127.0.0.1.evil.com", 403}, Case{"[::1", 403}, Case{"", 403}}) {
    HttpRequest request = Request();
    Set(&request, "host", c.host);
    EXPECT_EQ(Refusal(request), c.refusal) << c.host;
  }
  HttpRequest none = Request();
  none.headers.erase("host");
  EXPECT_EQ(Refusal(none), 403);
  HttpRequest two = Request();
  two.headers.emplace("host", "evil.example.com");
  EXPECT_EQ(Refusal(two), 403);
}

TEST_F(HandlerTest, OriginRules) {
  struct Case {
    const char* origin;
    int refusal;
  };
  for (const Case& c : {Case{"https://console.example", 0}, Case{"http://console.example", 403},
                        Case{"https://evil.example", 403}, Case{"null", 403}, Case{"", 403}}) {
    HttpRequest request = Request();
    Set(&request, "origin", c.origin);
    EXPECT_EQ(Refusal(request), c.refusal) << c.origin;
  }
  HttpRequest two = Request();
  two.headers.emplace("origin", "https://console.example");
  two.headers.emplace("origin", "https://evil.example");
  EXPECT_EQ(Refusal(two), 403);
}

TEST_F(HandlerTest, OriginIsCheckedBeforeTheToken) {
  HttpRequest request = Request();
  request.headers.erase("authorization");
  Set(&request, "origin", "https://evil.example");
  EXPECT_EQ(Refusal(request), 403);
}

TEST_F(HandlerTest, TokenRules) {
  struct Case {
    const char* value;
    int refusal;
  };
  for (const Case& c :
       {Case{"Bearer 0123456789abcdef", 0}, Case{"bearer 0123456789abcdef", 0},
        Case{"Bearer 0123456789abcdeX", 401}, Case{"Bearer 0123456789abcdef0", 401},
        Case{"Bearer 0123456789abcde", 401}, Case{"Bearer ", 401}, Case{"Bearer", 401},
        Case{"Basic 0123456789abcdef", 401}, Case{"0123456789abcdef", 401}, Case{"", 401}}) {
    HttpRequest request = Request();
    Set(&request, "authorization", c.value);
    EXPECT_EQ(Refusal(request), c.refusal) << c.value;
  }
  HttpRequest none = Request();
  none.headers.erase("authorization");
  auto refusal = handler_.Refuse(none);
  ASSERT_TRUE(refusal.has_value());
  EXPECT_NE(refusal->body.find("Authorization: Bearer <token>"), std::string::npos);
  EXPECT_NE(refusal->body.find("/dir/token"), std::string::npos);
  EXPECT_NE(refusal->body.find("\"UNAUTHENTICATED\""), std::string::npos);
}

TEST_F(HandlerTest, PathMethodAndType) {
  EXPECT_EQ(Refusal(Request()), 0);
  EXPECT_EQ(Refusal(Request("/ateapi.Control/Nothing")), 404);
  EXPECT_EQ(Refusal(Request("/ateapi.Control/GetActor?x=1")), 404);
  EXPECT_EQ(Refusal(Request("/ateapi.WorkerService/RegisterWorker")), 404);
  EXPECT_EQ(Refusal(Request("/torpor.v1.NodeRegistry/RegisterNode")), 404);
  EXPECT_EQ(Refusal(Request("/../token")), 404);
  for (const char* method : {"GET", "PUT", "OPTIONS", "DELETE"}) {
    HttpRequest request = Request();
    request.method = method;
    EXPECT_EQ(Refusal(request), 405) << method;
  }
  struct Case {
    const char* type;
    int refusal;
  };
  for (const Case& c : {Case{"application/json; charset=UTF-8", 0}, Case{"Application/JSON", 0},
                        Case{"application/json; charset=latin1", 415}, Case{"text/plain", 415},
                        Case{"application/connect+json", 415}, Case{"application/proto", 415},
                        Case{"application/x-www-form-urlencoded", 415}, Case{"", 415}}) {
    HttpRequest request = Request();
    Set(&request, "content-type", c.type);
    EXPECT_EQ(Refusal(request), c.refusal) << c.type;
  }
  HttpRequest encoded = Request();
  Set(&encoded, "content-encoding", "gzip");
  EXPECT_EQ(Refusal(encoded), 415);
}

TEST_F(HandlerTest, EveryRefusalIsAConnectErrorWithReason) {
  std::vector<HttpResponse> refusals = {HttpHandler::TooLarge()};
  HttpRequest get = Request();
  get.method = "GET";
  HttpRequest origin = Request();
  Set(&origin, "origin", "null");
  HttpRequest type = Request();
  Set(&type, "content-type", "text/html");
  HttpRequest token = Request();
  token.headers.erase("authorization");
  for (const HttpRequest& request : {get, origin, type, token, Request("/x")}) {
    refusals.push_back(*handler_.Refuse(request));
  }
  for (const HttpResponse& refusal : refusals) {
    auto json = nlohmann::json::parse(refusal.body);
    EXPECT_TRUE(json["code"].is_string());
    EXPECT_EQ(json["details"][0]["type"], "google.rpc.ErrorInfo");
    EXPECT_FALSE(json["details"][0]["debug"]["reason"].get<std::string>().empty());
  }
  EXPECT_EQ(refusals[0].status, 413);
}

TEST_F(HandlerTest, AnAnswer) {
  auto reply = Handle(Request());
  EXPECT_EQ(reply->sent.status, 200);
  EXPECT_EQ(reply->sent.body, R"({"metadata":{"name":"a"}})");
  EXPECT_EQ(reply->Header("content-type"), "application/json");
  EXPECT_EQ(reply->Header("trailer-x-server-elapsed-us"), "0");
}

TEST_F(HandlerTest, AnErrorOfTheMethod) {
  auto reply = Handle(Request(kGetActor, R"({"actor": {"atespace": "demo", "name": "missing"}})"));
  EXPECT_EQ(reply->sent.status, 404);
  EXPECT_EQ(reply->Header("retry-after"), "2");
  auto json = nlohmann::json::parse(reply->sent.body);
  EXPECT_EQ(json["code"], "not_found");
  EXPECT_NE(reply->Header("trailer-x-server-elapsed-us"), "");
}

TEST_F(HandlerTest, ABadRequestNamesTheFields) {
  auto reply = Handle(Request(kGetActor, R"({"actor": {"name": "A"}})"));
  EXPECT_EQ(reply->sent.status, 400);
  EXPECT_NE(reply->sent.body.find("actor.atespace"), std::string::npos);
  EXPECT_NE(reply->sent.body.find("actor.name"), std::string::npos);
}

TEST_F(HandlerTest, AMethodThatIsNotServed) {
  auto reply = Handle(Request("/torpor.v1.Ops/GetUsage", "{}"));
  EXPECT_EQ(reply->sent.status, 501);
  EXPECT_NE(reply->sent.body.find("NOT_IMPLEMENTED"), std::string::npos);
  auto stream = Handle(Request("/torpor.v1.Ops/WatchActors", "{}"));
  EXPECT_EQ(stream->sent.status, 501);
}

TEST_F(HandlerTest, AWaitingCallIsAnsweredLater) {
  HttpRequest request = Request("/ateapi.Control/ResumeActor");
  Set(&request, "connect-timeout-ms", "1000");
  auto reply = Handle(std::move(request));
  EXPECT_EQ(reply->answers, 0);
  EXPECT_EQ(deadline_, clock_.Now() + std::chrono::milliseconds(950));
  clock_.Advance(std::chrono::milliseconds(3));
  ateapi::ResumeActorResponse response;
  response.set_op_id("x");
  resume_(response);
  EXPECT_EQ(reply->answers, 1);
  EXPECT_EQ(reply->sent.body, R"({"opId":"x"})");
  EXPECT_EQ(reply->Header("trailer-x-server-elapsed-us"), "3000");
}

TEST_F(HandlerTest, TimeoutHeader) {
  for (const char* bad : {"", "-1", "1s", "12345678901", " 1"}) {
    HttpRequest request = Request();
    Set(&request, "connect-timeout-ms", bad);
    EXPECT_EQ(Handle(std::move(request))->sent.status, 400) << bad;
  }
  HttpRequest request = Request("/ateapi.Control/ResumeActor");
  Set(&request, "connect-timeout-ms", "9999999999");
  Handle(std::move(request));
  EXPECT_GT(deadline_, clock_.Now() + std::chrono::hours(24 * 100));
  EXPECT_LT(deadline_, MonotonicTime::max());
}

TEST_F(HandlerTest, ALogStream) {
  auto reply = Handle(Request("/torpor.v1.Ops/ReadLogs"));
  EXPECT_EQ(reply->answers, 0);
  torpor::v1::LogLine line;
  line.set_line("hello");
  int written = 0;
  logs_->Write(line, [&](bool ok) { written += ok; });
  logs_->Write(line, [&](bool ok) { written += ok; });
  logs_->Finish(OkStatus());
  EXPECT_EQ(written, 2);
  EXPECT_EQ(reply->Header("content-type"), "application/x-ndjson");
  EXPECT_EQ(reply->sent.body, "{\"line\":\"hello\"}\n{\"line\":\"hello\"}\n");
  EXPECT_TRUE(reply->ended);
}

TEST_F(HandlerTest, AStreamThatFails) {
  auto early = Handle(Request("/torpor.v1.Ops/ReadLogs"));
  logs_->Finish(Error(Code::kNotFound, "ACTOR_NOT_FOUND", "no"));
  EXPECT_EQ(early->sent.status, 404);
  auto late = Handle(Request("/torpor.v1.Ops/ReadLogs"));
  logs_->Write(torpor::v1::LogLine(), [](bool) {});
  logs_->Finish(Error(Code::kUnavailable, "NODE_UNREACHABLE", "gone"));
  EXPECT_EQ(late->sent.status, 200);
  EXPECT_EQ(late->sent.body.rfind("{}\n{\"error\":{\"code\":\"unavailable\"", 0), 0u)
      << late->sent.body;
  EXPECT_TRUE(late->ended);
}

TEST_F(HandlerTest, HealthNeedsNoTokenButAHost) {
  HttpRequest request;
  request.method = "GET";
  request.target = "/healthz";
  request.headers = {{"host", "127.0.0.1"}};
  EXPECT_EQ(Refusal(request), 0);
  EXPECT_EQ(Handle(request)->sent.body, "ok\n");
  Set(&request, "host", "evil.example.com");
  EXPECT_EQ(Refusal(request), 403);
}

}  // namespace
}  // namespace torpor::api
