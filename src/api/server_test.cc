// The listeners with real sockets, over handlers that the tests control.

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <future>

#include "api/http/server.h"
#include "api/service/grpc_service.h"
#include "api/service/log_client.h"
#include "api/testing/http_connection.h"
#include "ateapi/ateapi.grpc.pb.h"
#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "rpc/channel.h"
#include "rpc/status.h"
#include "rpc/unix_server.h"
#include "torpor/v1/ops.grpc.pb.h"

namespace torpor::api {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr char kToken[] = "0123456789abcdef";

ateapi::GetActorRequest Get(const std::string& name) {
  ateapi::GetActorRequest request;
  request.mutable_actor()->set_atespace("demo");
  request.mutable_actor()->set_name(name);
  return request;
}

class ServerTest : public testing::Test {
 protected:
  using ResumeDone = std::function<void(StatusOr<ateapi::ResumeActorResponse>)>;

  ServerTest() {
    fs::create_directories(dir_);
    dispatcher_.Quick<ateapi::GetActorRequest, ateapi::Actor>(
        "/ateapi.Control/GetActor",
        [](const ateapi::GetActorRequest& request) -> StatusOr<ateapi::Actor> {
          if (request.actor().name() == "missing") {
            return Error(Code::kNotFound, "ACTOR_NOT_FOUND", "no", {{"actor", "demo/missing"}});
          }
          ateapi::Actor actor;
          actor.mutable_metadata()->set_name(request.actor().name());
          return actor;
        });
    dispatcher_.Waiting<ateapi::ResumeActorRequest, ateapi::ResumeActorResponse>(
        "/ateapi.Control/ResumeActor",
        [this](const ateapi::ResumeActorRequest&, const Call&, ResumeDone done) {
          MutexLock lock(&mu_);
          waiting_.push_back(std::move(done));
          changed_.SignalAll();
        });
    dispatcher_.Streaming<torpor::v1::ReadLogsRequest>(
        "/torpor.v1.Ops/ReadLogs",
        [this](const torpor::v1::ReadLogsRequest& request, const Call& call, auto stream) {
          logs_.Read("unix:" + agent_socket_, request, call, std::move(stream));
        });
  }
  ~ServerTest() override {
    dispatcher_.Stop();
    waiting_.clear();
    logs_.Stop();
    fs::remove_all(dir_);
  }

  std::vector<ResumeDone> WaitForResumes(size_t count) {
    MutexLock lock(&mu_);
    while (waiting_.size() < count) changed_.Wait(&mu_);
    return waiting_;
  }
  std::shared_ptr<grpc::Channel> Channel(const GrpcServer& server, const std::string& token) {
    return rpc::Connect("127.0.0.1:" + std::to_string(server.port()),
                        {.message_bytes_max = rpc::kPublicMessageBytesMax, .token = token});
  }

  const fs::path dir_ = "/tmp/api-server-" + RandomHex(8);
  const std::string agent_socket_ = dir_ / "agent.sock";
  Mutex mu_;
  CondVar changed_;
  std::vector<ResumeDone> waiting_;
  Dispatcher dispatcher_{4};
  LogClient logs_;
  TokenAuthenticator token_{kToken, "token"};
  GrpcService on_tcp_{&dispatcher_, &token_, Clock::Real()};
  GrpcService on_socket_{&dispatcher_, nullptr, Clock::Real()};
};

// ---- gRPC ----

class GrpcTest : public ServerTest {
 protected:
  GrpcTest() {
    auto server = GrpcServer::Start("127.0.0.1:0", &on_tcp_);
    EXPECT_OK(server);
    server_ = std::move(*server);
    control_ = ateapi::Control::NewStub(Channel(*server_, kToken));
  }
  // Before the handlers that the tests own.
  ~GrpcTest() override { server_->Stop(milliseconds(0)); }

  std::unique_ptr<GrpcServer> server_;
  std::unique_ptr<ateapi::Control::Stub> control_;
};

TEST_F(GrpcTest, ACallAndItsTrailer) {
  grpc::ClientContext context;
  ateapi::Actor actor;
  ASSERT_OK(rpc::FromGrpc(control_->GetActor(&context, Get("a"), &actor)));
  EXPECT_EQ(actor.metadata().name(), "a");
  EXPECT_EQ(context.GetServerTrailingMetadata().count("x-server-elapsed-us"), 1u);
}

TEST_F(GrpcTest, ErrorsCarryReasonAndTrailer) {
  grpc::ClientContext context;
  ateapi::Actor actor;
  Status status = rpc::FromGrpc(control_->GetActor(&context, Get("missing"), &actor));
  EXPECT_THAT(status, HasReason(Code::kNotFound, "ACTOR_NOT_FOUND"));
  EXPECT_EQ(MetadataOf(status)["actor"], "demo/missing");
  EXPECT_EQ(context.GetServerTrailingMetadata().count("x-server-elapsed-us"), 1u);
}

TEST_F(GrpcTest, WhatIsNotServed) {
  grpc::ClientContext context;
  ateapi::Tag tag;
  EXPECT_THAT(rpc::FromGrpc(control_->CreateTag(&context, {}, &tag)),
              HasReason(Code::kUnimplemented, "NOT_IMPLEMENTED"));
  auto workers = ateapi::WorkerService::NewStub(Channel(*server_, kToken));
  grpc::ClientContext context2;
  ateapi::RegisterWorkerResponse response;
  EXPECT_THAT(rpc::FromGrpc(workers->RegisterWorker(&context2, {}, &response)),
              HasReason(Code::kUnimplemented, "NOT_IMPLEMENTED"));
}

TEST_F(GrpcTest, TheTokenIsNeeded) {
  for (const char* token : {"", "0123456789abcdeX", "x"}) {
    auto stub = ateapi::Control::NewStub(Channel(*server_, token));
    grpc::ClientContext context;
    ateapi::Actor actor;
    Status status = rpc::FromGrpc(stub->GetActor(&context, Get("a"), &actor));
    EXPECT_THAT(status, HasReason(Code::kUnauthenticated, "UNAUTHENTICATED")) << token;
    EXPECT_THAT(status, MessageHas("Authorization: Bearer"));
  }
}

TEST_F(GrpcTest, ATooLargeRequestIsRefused) {
  grpc::ClientContext context;
  ateapi::Actor actor;
  auto big = ateapi::Control::NewStub(
      rpc::Connect("127.0.0.1:" + std::to_string(server_->port()), {.token = kToken}));
  EXPECT_THAT(rpc::FromGrpc(big->GetActor(&context, Get(std::string(5 << 20, 'x')), &actor)),
              HasCode(Code::kResourceExhausted));
}

TEST_F(GrpcTest, WaitingCallsHoldNoThread) {
  constexpr int kCalls = 200;
  std::deque<grpc::ClientContext> contexts(kCalls);
  std::vector<ateapi::ResumeActorResponse> responses(kCalls);
  ateapi::ResumeActorRequest request;
  *request.mutable_actor() = Get("a").actor();
  std::atomic<int> answered = 0;
  std::promise<void> all;
  for (int i = 0; i < kCalls; ++i) {
    control_->async()->ResumeActor(&contexts[i], &request, &responses[i], [&](grpc::Status s) {
      EXPECT_TRUE(s.ok());
      if (++answered == kCalls) all.set_value();
    });
  }
  auto waiting = WaitForResumes(kCalls);
  grpc::ClientContext context;
  ateapi::Actor actor;
  ASSERT_OK(rpc::FromGrpc(control_->GetActor(&context, Get("a"), &actor)));
  for (auto& done : waiting) done(ateapi::ResumeActorResponse());
  all.get_future().wait();
}

TEST_F(GrpcTest, ACallerThatLeavesChangesNothing) {
  grpc::ClientContext context;
  rpc::SetDeadline(&context, milliseconds(50));
  ateapi::ResumeActorRequest request;
  *request.mutable_actor() = Get("a").actor();
  ateapi::ResumeActorResponse response;
  EXPECT_THAT(rpc::FromGrpc(control_->ResumeActor(&context, request, &response)),
              HasCode(Code::kDeadlineExceeded));
  auto waiting = WaitForResumes(1);
  waiting[0](ateapi::ResumeActorResponse());  // late, and harmless
  grpc::ClientContext again;
  ateapi::Actor actor;
  EXPECT_OK(rpc::FromGrpc(control_->GetActor(&again, Get("a"), &actor)));
}

TEST_F(GrpcTest, APortThatIsTakenIsAnError) {
  EXPECT_THAT(GrpcServer::Start("127.0.0.1:" + std::to_string(server_->port()), &on_tcp_).status(),
              HasCode(Code::kAlreadyExists));
  EXPECT_FALSE(GrpcServer::Start("nonsense", &on_tcp_).ok());
}

TEST_F(GrpcTest, TheUnixSocketNeedsNoToken) {
  const std::string path = dir_ / "api.sock";
  ASSERT_OK_AND_ASSIGN(
      auto server,
      rpc::UnixServer::Start(path, {}, {.configure = [this](grpc::ServerBuilder* builder) {
                               on_socket_.AddTo(builder);
                             }}));
  auto stub = ateapi::Control::NewStub(rpc::Connect("unix:" + path));
  grpc::ClientContext context;
  ateapi::Actor actor;
  ASSERT_OK(rpc::FromGrpc(stub->GetActor(&context, Get("a"), &actor)));
  server->Shutdown();
}

// ---- Logs ----

// A node agent whose log never ends unless told so.
class FakeAgent : public torpor::v1::Ops::Service {
 public:
  grpc::Status ReadLogs(grpc::ServerContext* context, const torpor::v1::ReadLogsRequest* request,
                        grpc::ServerWriter<torpor::v1::LogLine>* writer) override {
    for (int i = 0; i < 3; ++i) {
      torpor::v1::LogLine line;
      line.set_line(request->actor().name() + " " + std::to_string(i));
      writer->Write(line);
    }
    if (request->container() == "fail") {
      return rpc::ToGrpc(Error(Code::kNotFound, "ACTOR_NOT_FOUND", "gone"));
    }
    while (request->follow() && !context->IsCancelled()) usleep(1000);
    if (context->IsCancelled()) cancelled.set_value();
    return grpc::Status::OK;
  }
  std::promise<void> cancelled;
};

class LogsTest : public GrpcTest {
 protected:
  LogsTest() {
    auto agent = rpc::UnixServer::Start(agent_socket_, {&agent_});
    EXPECT_OK(agent);
    agent_server_ = std::move(*agent);
    ops_ = torpor::v1::Ops::NewStub(Channel(*server_, kToken));
    *request_.mutable_actor() = Get("a").actor();
  }
  ~LogsTest() override {
    server_->Stop(milliseconds(0));
    agent_server_->Shutdown(milliseconds(0));
  }
  FakeAgent agent_;
  std::unique_ptr<rpc::UnixServer> agent_server_;
  std::unique_ptr<torpor::v1::Ops::Stub> ops_;
  torpor::v1::ReadLogsRequest request_;
};

TEST_F(LogsTest, LinesComeThrough) {
  grpc::ClientContext context;
  auto reader = ops_->ReadLogs(&context, request_);
  torpor::v1::LogLine line;
  std::vector<std::string> lines;
  while (reader->Read(&line)) lines.push_back(line.line());
  EXPECT_OK(rpc::FromGrpc(reader->Finish()));
  EXPECT_EQ(lines, (std::vector<std::string>{"a 0", "a 1", "a 2"}));
}

TEST_F(LogsTest, TheErrorOfTheAgentComesThrough) {
  request_.set_container("fail");
  grpc::ClientContext context;
  auto reader = ops_->ReadLogs(&context, request_);
  torpor::v1::LogLine line;
  while (reader->Read(&line)) {
  }
  EXPECT_THAT(rpc::FromGrpc(reader->Finish()), HasReason(Code::kNotFound, "ACTOR_NOT_FOUND"));
}

TEST_F(LogsTest, AReaderThatLeavesEndsTheStreamOfTheAgent) {
  request_.set_follow(true);
  grpc::ClientContext context;
  auto reader = ops_->ReadLogs(&context, request_);
  torpor::v1::LogLine line;
  ASSERT_TRUE(reader->Read(&line));
  context.TryCancel();
  EXPECT_THAT(rpc::FromGrpc(reader->Finish()), HasCode(Code::kCancelled));
  agent_.cancelled.get_future().wait();
}

TEST_F(LogsTest, AnAgentThatIsNotThere) {
  agent_server_->Shutdown(milliseconds(0));
  grpc::ClientContext context;
  auto reader = ops_->ReadLogs(&context, request_);
  torpor::v1::LogLine line;
  EXPECT_FALSE(reader->Read(&line));
  EXPECT_THAT(rpc::FromGrpc(reader->Finish()), HasReason(Code::kUnavailable, "NODE_UNREACHABLE"));
}

// ---- HTTP ----

std::string Post(const std::string& path, const std::string& body, const std::string& more = "") {
  return "POST " + path +
         " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nAuthorization: "
         "Bearer " +
         kToken + "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + more + "\r\n" +
         body;
}

constexpr char kGetPath[] = "/ateapi.Control/GetActor";
constexpr char kGetBody[] = R"({"actor":{"atespace":"demo","name":"a"}})";

class HttpTest : public ServerTest {
 protected:
  HttpTest() {
    auto server = HttpServer::Start("127.0.0.1:0", &handler_);
    EXPECT_OK(server);
    server_ = std::move(*server);
  }
  ~HttpTest() override {
    waiting_.clear();
    logs_.Stop();
    server_->Stop(milliseconds(0));
  }
  HttpHandler handler_{&dispatcher_, &token_, {}, Clock::Real()};
  std::unique_ptr<HttpServer> server_;
};

TEST_F(HttpTest, ACallAndKeepAlive) {
  Connection connection(server_->port());
  for (int i = 0; i < 3; ++i) {
    connection.Send(Post(kGetPath, kGetBody));
    const std::string head = connection.ReadUntil("\r\n\r\n");
    EXPECT_EQ(head.rfind("HTTP/1.1 200", 0), 0u) << head;
    EXPECT_NE(head.find("trailer-x-server-elapsed-us: "), std::string::npos) << head;
    EXPECT_EQ(connection.ReadUntil("}}"), R"({"metadata":{"name":"a"}})");
  }
}

TEST_F(HttpTest, PipelinedRequestsAreAnsweredInOrder) {
  Connection connection(server_->port());
  connection.Send(Post(kGetPath, kGetBody) +
                  Post(kGetPath, R"({"actor":{"atespace":"demo","name":"b"}})"));
  EXPECT_NE(connection.ReadUntil("}}").find(R"("a")"), std::string::npos);
  EXPECT_NE(connection.ReadUntil("}}").find(R"("b")"), std::string::npos);
}

TEST_F(HttpTest, ContinueIsSentForAGoodHeadOnly) {
  Connection good(server_->port());
  const std::string request = Post(kGetPath, kGetBody, "Expect: 100-continue\r\n");
  const size_t body = request.find("\r\n\r\n") + 4;
  good.Send(request.substr(0, body));
  EXPECT_EQ(good.ReadUntil("\r\n\r\n"), "HTTP/1.1 100 Continue\r\n\r\n");
  good.Send(request.substr(body));
  EXPECT_EQ(good.ReadUntil("\r\n\r\n").rfind("HTTP/1.1 200", 0), 0u);
  Connection bad(server_->port());
  bad.Send(
      "POST /x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n");
  EXPECT_EQ(bad.ReadAll().rfind("HTTP/1.1 404", 0), 0u);
}

TEST_F(HttpTest, BodiesAboveTheLimitAreRefused) {
  Connection announced(server_->port());
  announced.Send(std::string("POST ") + kGetPath +
                 " HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                 "Authorization: Bearer " +
                 kToken + "\r\nContent-Length: 4194305\r\n\r\n");
  EXPECT_EQ(announced.ReadAll().rfind("HTTP/1.1 413", 0), 0u);
  Connection fits(server_->port());
  std::string body = kGetBody + std::string((4 << 20) - strlen(kGetBody), ' ');
  fits.Send(Post(kGetPath, body));
  EXPECT_EQ(fits.ReadUntil("\r\n\r\n").rfind("HTTP/1.1 200", 0), 0u);
}

TEST_F(HttpTest, ARefusedHeadEndsTheConnection) {
  Connection connection(server_->port());
  connection.Send(
      "POST /ateapi.Control/GetActor HTTP/1.1\r\nHost: evil.example\r\nContent-Length: "
      "100000\r\n\r\n");
  const std::string answer = connection.ReadAll();
  EXPECT_EQ(answer.rfind("HTTP/1.1 403", 0), 0u) << answer;
  EXPECT_NE(answer.find("NOT_ALLOWED"), std::string::npos);
}

TEST_F(HttpTest, GarbageEndsTheConnection) {
  Connection connection(server_->port());
  connection.Send("\x16\x03\x01garbage\r\n\r\n");
  EXPECT_EQ(connection.ReadAll(), "");
}

TEST_F(HttpTest, WaitingCallsHoldNoThread) {
  std::deque<Connection> connections;
  for (int i = 0; i < 50; ++i) {
    connections.emplace_back(server_->port());
    connections.back().Send(Post("/ateapi.Control/ResumeActor", kGetBody));
  }
  auto waiting = WaitForResumes(50);
  Connection other(server_->port());
  other.Send(Post(kGetPath, kGetBody));
  EXPECT_EQ(other.ReadUntil("\r\n\r\n").rfind("HTTP/1.1 200", 0), 0u);
  for (auto& done : waiting) done(ateapi::ResumeActorResponse());
  for (Connection& connection : connections) {
    EXPECT_EQ(connection.ReadUntil("\r\n\r\n").rfind("HTTP/1.1 200", 0), 0u);
  }
}

TEST_F(HttpTest, AClientThatLeavesWhileItsCallWaits) {
  {
    Connection connection(server_->port());
    connection.Send(Post("/ateapi.Control/ResumeActor", kGetBody));
    WaitForResumes(1);
  }
  WaitForResumes(1)[0](ateapi::ResumeActorResponse());
  Connection other(server_->port());
  other.Send(Post(kGetPath, kGetBody));
  EXPECT_EQ(other.ReadUntil("\r\n\r\n").rfind("HTTP/1.1 200", 0), 0u);
}

TEST_F(HttpTest, LogsAreLinesAndEndWithTheClient) {
  FakeAgent agent;
  ASSERT_OK_AND_ASSIGN(auto agent_server, rpc::UnixServer::Start(agent_socket_, {&agent}));
  Connection all(server_->port());
  all.Send(Post("/torpor.v1.Ops/ReadLogs", kGetBody));
  const std::string answer = all.ReadAll();
  EXPECT_NE(answer.find("application/x-ndjson"), std::string::npos) << answer;
  EXPECT_NE(answer.find("{\"line\":\"a 0\"}\n"), std::string::npos) << answer;
  EXPECT_NE(answer.find("{\"line\":\"a 2\"}\n"), std::string::npos) << answer;
  EXPECT_EQ(answer.substr(answer.size() - 5), "0\r\n\r\n");
  Connection follower(server_->port());
  follower.Send(
      Post("/torpor.v1.Ops/ReadLogs", R"({"actor":{"atespace":"demo","name":"a"},"follow":true})"));
  follower.ReadUntil("a 2");
  follower.Close();
  agent.cancelled.get_future().wait();
  agent_server->Shutdown(milliseconds(0));
}

TEST_F(HttpTest, APortThatIsTakenIsAnError) {
  EXPECT_THAT(HttpServer::Start("127.0.0.1:" + std::to_string(server_->port()), &handler_).status(),
              HasCode(Code::kAlreadyExists));
  for (const char* bad : {"", "localhost", "127.0.0.1:x", "127.0.0.1:99999", "host.example:1"}) {
    EXPECT_THAT(HttpServer::Start(bad, &handler_).status(), HasCode(Code::kInvalidArgument)) << bad;
  }
}

TEST_F(HttpTest, StopEndsIdleConnectionsAtOnce) {
  Connection connection(server_->port());
  connection.Send(Post(kGetPath, kGetBody));
  connection.ReadUntil("}}");
  const MonotonicTime start = Clock::Real()->Now();
  server_->Stop(seconds(30));
  EXPECT_LT(Clock::Real()->Now() - start, seconds(10));
  EXPECT_EQ(connection.ReadAll(), "");
}

}  // namespace
}  // namespace torpor::api
