// Limits, timers, refusals, parking, shutdown and the admin pages, through real sockets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "base/testing/matchers.h"
#include "router/testing/test_bed.h"

namespace torpor::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(RouterLimitsTest, SmuggledRequestsAreRefusedAndTheConnectionEnds) {
  TestBed s(CountingActor);
  for (const char* fields : {"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
                             "Transfer-Encoding : chunked\r\n", "Transfer-Encoding: x, chunked\r\n",
                             "Content-Length: +4\r\n", "X: a\r\n b\r\n", "Host: other\r\n"}) {
    Peer client = s.Client();
    client.Send("POST / HTTP/1.1\r\nHost: " + std::string(kHost) + "\r\n" + fields +
                "\r\n0\r\n\r\nGET /admin HTTP/1.1\r\nHost: x\r\n\r\n");
    std::string all = client.ReadToEnd();
    EXPECT_THAT(all, StartsWith("HTTP/1.1 400 ")) << fields;
    EXPECT_EQ(all.find("\nHTTP/1.1"), std::string::npos) << all;
  }
  EXPECT_TRUE(s.door.connects().empty());
}

TEST(RouterLimitsTest, PipelinedRequestsAreAnsweredInOrder) {
  TestBed s(CountingActor);
  Peer client = s.Client();
  client.Send(Get("/1") + Get("/2") + Get("/3"));
  for (const char* expected : {"1", "2", "3"}) {
    std::string body;
    client.ReadAnswer(&body);
    EXPECT_EQ(body, expected);
  }
}

TEST(RouterLimitsTest, ASlowHeadTimesOut) {
  RouterOptions options = TestOptions();
  options.head_timeout = milliseconds(60);
  TestBed s(CountingActor, options);
  Peer client = s.Client();
  client.Send("GET / HTTP/1.1\r\nHo");
  EXPECT_THAT(client.ReadToEnd(), StartsWith("HTTP/1.1 408 "));
}

TEST(RouterLimitsTest, AnIdleClientIsClosed) {
  RouterOptions options = TestOptions();
  options.keep_alive_timeout = milliseconds(60);
  TestBed s(CountingActor, options);
  Peer client = s.Client();
  client.Send(Get("/"));
  client.ReadAnswer();
  EXPECT_EQ(client.ReadToEnd(), "");
}

TEST(RouterLimitsTest, AnActorThatNeverAnswersTimesOut) {
  TestBed s([](Peer& peer) { peer.WaitClosed(); });
  s.route.http.first_byte_timeout = milliseconds(60);
  Peer client = s.Client();
  client.Send(Get("/"));
  std::string body;
  EXPECT_THAT(client.ReadAnswer(&body), HasSubstr("torpor-reason: FIRST_BYTE_TIMEOUT"));
  EXPECT_THAT(body, HasSubstr("\"reached_actor\":true"));
}

TEST(RouterLimitsTest, ASilentStreamIsCut) {
  TestBed s([](Peer& peer) {
    peer.ReadHead();
    peer.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    peer.WaitClosed();
  });
  s.route.http.stream_idle_timeout = milliseconds(60);
  Peer client = s.Client();
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadToEnd(), Not(HasSubstr("\r\n0\r\n")));
  EXPECT_THAT(s.Metrics(), HasSubstr("torpor_router_cut_streams_total{reason=\"STREAM_IDLE\"} 1"));
}

TEST(RouterLimitsTest, AProgramThatDoesNotListenYetIsTriedAgainAfterAWake) {
  TestBed s(CountingActor, TestOptions(), [](const std::string&, int number) {
    return number <= 3 ? FakeDoor::No(502, "CONNECT_REFUSED") : std::string(FakeDoor::kOpen);
  });
  s.route.woke_at = std::chrono::steady_clock::now();
  Peer client = s.Client();
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(s.door.connects().size(), 4u);
}

TEST(RouterLimitsTest, AProgramThatDoesNotListenIsSaidSo) {
  TestBed s(CountingActor, TestOptions(),
            [](const std::string&, int) { return FakeDoor::No(502, "CONNECT_REFUSED"); });
  Peer client = s.Client();
  client.Send(Get("/"));
  std::string head = client.ReadAnswer();
  EXPECT_THAT(head, StartsWith("HTTP/1.1 502"));
  EXPECT_THAT(head, HasSubstr("torpor-reason: ACTOR_NOT_LISTENING"));
}

TEST(RouterLimitsTest, PortsOutsideTheTemplateAreRefused) {
  TestBed s(CountingActor);
  Peer client = s.Client();
  client.Send(Get("/", "torpor-target-port: 9000\r\n"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(s.door.connects()[0], HasSubstr(":9000 HTTP/1.1"));
  client.Send(Get("/", "torpor-target-port: 22\r\n"));
  EXPECT_THAT(client.ReadAnswer(), HasSubstr("torpor-reason: BAD_PORT"));
}

TEST(RouterLimitsTest, BodiesAboveTheTemplatesLimitAreRefused) {
  TestBed s([](Peer& peer) { peer.WaitClosed(); });
  s.route.http.max_body_bytes = 10;
  std::string host = "Host: " + std::string(kHost) + "\r\n";
  Peer client = s.Client();
  client.Send("POST / HTTP/1.1\r\n" + host + "Content-Length: 11\r\n\r\n");
  EXPECT_THAT(client.ReadAnswer(), HasSubstr("torpor-reason: BODY_TOO_LARGE"));
  Peer chunked = s.Client();
  chunked.Send("POST / HTTP/1.1\r\n" + host +
               "Transfer-Encoding: chunked\r\n\r\nb\r\nhello world\r\n");
  EXPECT_THAT(chunked.ReadAnswer(), HasSubstr("torpor-reason: BODY_TOO_LARGE"));
}

TEST(RouterLimitsTest, AnActorMayAskToSleepAfterItsAnswer) {
  TestBed s([](Peer& peer) {
    peer.ReadHead();
    peer.Send(Ok("x", "torpor-hibernate: suspend\r\n"));
    peer.ReadHead();
  });
  Peer client = s.Client();
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), Not(HasSubstr("hibernate")));
  EXPECT_THAT(s.reporter.WaitForWishes(1), ElementsAre(std::string(kUid) + ".7 suspend"));
}

TEST(RouterLimitsTest, ParkedRequestsShareOneWakeAndSaySo) {
  ParkingBed s;
  Peer first = s.Client();
  first.Send(Get("/1"));
  ASSERT_TRUE(s.resolver.WaitForCalls(1));
  Peer second = s.Client();
  second.Send("POST /2 HTTP/1.1\r\nHost: " + std::string(kHost) + "\r\nContent-Length: 0\r\n\r\n");
  // A warm actor beside it is not held up; its lookup is a call of its own.
  Peer other = s.Client();
  other.Send("GET / HTTP/1.1\r\nHost: b.demo.actors.localhost\r\n\r\n");
  ASSERT_TRUE(s.resolver.WaitForCalls(2));
  ASSERT_TRUE(s.WaitForWaiting(3));
  s.resolver.AnswerNext(FakeResolver::Woken(RouteTo(s.door)));
  std::string head = first.ReadAnswer();
  EXPECT_THAT(head, HasSubstr("wake;desc=\"triggered\""));
  EXPECT_THAT(head, HasSubstr("park;dur="));
  EXPECT_THAT(head, HasSubstr("restore;dur=42.250"));
  EXPECT_THAT(second.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(s.resolver.calls(), 2);
}

TEST(RouterLimitsTest, ARefusedWakeIsExplained) {
  ParkingBed s;
  Peer client = s.Client();
  client.Send(Get("/"));
  ASSERT_TRUE(s.resolver.WaitForCalls(1));
  s.resolver.AnswerNext(Error(Code::kFailedPrecondition, "ACTOR_CRASHED", "it crashed"));
  std::string body;
  std::string head = client.ReadAnswer(&body);
  EXPECT_THAT(head, StartsWith("HTTP/1.1 503"));
  EXPECT_THAT(head, HasSubstr("Content-Type: application/problem+json\r\n"));
  EXPECT_THAT(head, HasSubstr("torpor-reason: ACTOR_CRASHED\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("Retry-After")));
  EXPECT_THAT(body, HasSubstr("\"actor\":\"demo/a\""));
  // The connection goes on.
  client.Send(Get("/"));
  ASSERT_TRUE(s.resolver.WaitForCalls(2));
  s.resolver.AnswerNext(FakeResolver::Running(RouteTo(s.door)));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
}

// The control plane says that a wake from the object store is under way.
RouterOptions ShortBudgets() {
  RouterOptions options = TestOptions();
  options.park_budget = seconds(1);
  options.park_budget_max = seconds(2);
  return options;
}
WakeProgress Cold() { return WakeProgress{"start", "durable", seconds(7), true}; }

TEST(RouterLimitsTest, AColdWakeExtendsTheDefaultBudgetAndIsExplained) {
  ParkingBed s(ShortBudgets());
  s.resolver.set_progress(Cold());
  Peer client = s.Client();
  auto begin = std::chrono::steady_clock::now();
  client.Send(Get("/"));
  std::string body;
  EXPECT_THAT(client.ReadAnswer(&body), HasSubstr("torpor-reason: STILL_WAKING\r\n"));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, seconds(2));
  EXPECT_THAT(body, HasSubstr("\"queue_position\":1,\"progress\":{\"phase\":\"start\","
                              "\"source\":\"durable\",\"elapsed_ms\":7"));
  s.resolver.AnswerNext(FakeResolver::Woken(RouteTo(s.door)));
}

TEST(RouterLimitsTest, AnExtendedBudgetAlsoHoldsForWhatTheDoorRefuses) {
  RouterOptions options = ShortBudgets();
  options.park_budget_max = seconds(60);
  ParkingBed s(options, [](const std::string&, int number) {
    return number == 1 ? FakeDoor::No(503, "DRAINING") : std::string(FakeDoor::kOpen);
  });
  s.resolver.set_progress(Cold());
  Peer client = s.Client();
  client.Send(Get("/"));
  ASSERT_TRUE(s.resolver.WaitForCalls(1));
  std::this_thread::sleep_for(milliseconds(1200));
  s.resolver.AnswerNext(FakeResolver::Woken(RouteTo(s.door)));
  ASSERT_TRUE(s.resolver.WaitForCalls(2));
  // Long enough for a deadline that is over to be noticed.
  std::this_thread::sleep_for(milliseconds(100));
  s.resolver.AnswerNext(FakeResolver::Woken(RouteTo(s.door)));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
}

TEST(RouterLimitsTest, WhatAClientAsksForIsNotExtended) {
  RouterOptions options = ShortBudgets();
  options.park_budget_max = seconds(60);
  ParkingBed s(options);
  s.resolver.set_progress(Cold());
  Peer client = s.Client();
  client.Send(Get("/", "torpor-park-timeout: 1\r\n"));
  std::string body;
  EXPECT_THAT(client.ReadAnswer(&body), HasSubstr("torpor-reason: STILL_WAKING\r\n"));
  EXPECT_THAT(body, HasSubstr("\"source\":\"durable\""));
  s.resolver.AnswerNext(FakeResolver::Woken(RouteTo(s.door)));
}

TEST(RouterLimitsTest, WhatATemplateSaysIsNotExtended) {
  RouterOptions options = ShortBudgets();
  options.park_budget_max = seconds(60);
  options.route_ttl = milliseconds(1);
  ParkingBed s(options);
  s.resolver.set_progress(Cold());
  Peer client = s.Client();
  client.Send(Get("/"));
  ASSERT_TRUE(s.resolver.WaitForCalls(1));
  Route route = RouteTo(s.door);
  route.http.park_budget = seconds(1);
  s.resolver.AnswerNext(FakeResolver::Running(route));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  std::this_thread::sleep_for(milliseconds(2));
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), HasSubstr("torpor-reason: STILL_WAKING\r\n"));
  s.resolver.AnswerNext(FakeResolver::Woken(RouteTo(s.door)));
}

TEST(RouterLimitsTest, TheLeaderMayLeave) {
  ParkingBed s;
  Peer second = s.Client();
  {
    Peer leader = s.Client();
    leader.Send(Get("/"));
    ASSERT_TRUE(s.resolver.WaitForCalls(1));
    second.Send(Get("/"));
    ASSERT_TRUE(s.WaitForWaiting(2));
  }
  ASSERT_TRUE(s.WaitForWaiting(1));
  s.resolver.AnswerNext(FakeResolver::Woken(RouteTo(s.door)));
  EXPECT_THAT(second.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(s.resolver.calls(), 1);
}

TEST(RouterLimitsTest, ShutdownAnswersTheParkedAndEndsTheRest) {
  RouterOptions options = TestOptions();
  options.shutdown_grace = seconds(10);
  ParkingBed s(options);
  Peer idle = s.Client();
  Peer parked = s.Client();
  parked.Send(Get("/"));
  ASSERT_TRUE(s.resolver.WaitForCalls(1));
  std::thread shutdown([&] { s.router->Shutdown(); });
  std::string head = parked.ReadAnswer();
  EXPECT_THAT(head, HasSubstr("torpor-reason: ROUTER_DRAINING\r\n"));
  EXPECT_THAT(head, HasSubstr("Connection: close\r\n"));
  EXPECT_EQ(idle.ReadToEnd(), "");
  parked.Close();
  shutdown.join();
  s.resolver.AnswerNext(FakeResolver::Running(RouteTo(s.door)));
}

TEST(RouterLimitsTest, AdminPagesAreOnTheirOwnPort) {
  TestBed s(CountingActor);
  Peer client = s.Client();
  client.Send(Get("/"));
  client.ReadAnswer();
  std::string metrics = s.Metrics();
  EXPECT_THAT(metrics,
              HasSubstr("torpor_router_requests_total{status_class=\"2xx\",reason=\"\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("torpor_router_request_seconds_count{wake=\"none\"} 1\n"));
  for (const char* path : {"/healthz", "/readyz", "/statusz"}) {
    Peer admin = Peer::ConnectTcp(s.router->admin_port());
    admin.Send(std::string("GET ") + path + " HTTP/1.1\r\nHost: localhost:4040\r\n\r\n");
    EXPECT_THAT(admin.ReadToEnd(), StartsWith("HTTP/1.1 200")) << path;
  }
  Peer rebound = Peer::ConnectTcp(s.router->admin_port());
  rebound.Send("GET /metrics HTTP/1.1\r\nHost: evil.example\r\n\r\n");
  EXPECT_THAT(rebound.ReadToEnd(), StartsWith("HTTP/1.1 403"));
  Peer data = s.Client();
  data.Send("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");
  EXPECT_THAT(data.ReadAnswer(), HasSubstr("torpor-reason: NO_TARGET"));
}

}  // namespace
}  // namespace torpor::router
