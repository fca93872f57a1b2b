// What the router does about what a door says on the control connection; here the test is the door.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "router/testing/test_bed.h"

namespace torpor::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::StartsWith;
using torpor::v1::DoorLine;

DoorLine Drain(int64_t seq, const std::string& why = "api", int64_t grace_ms = 20'000) {
  DoorLine line;
  line.mutable_drain()->set_uid(kUid);
  line.mutable_drain()->set_gen(7);
  line.mutable_drain()->set_why(why);
  line.mutable_drain()->set_grace_ms(grace_ms);
  line.mutable_drain()->set_seq(seq);
  return line;
}

DoorLine Undrain() {
  DoorLine line;
  line.mutable_undrain()->set_uid(kUid);
  line.mutable_undrain()->set_gen(7);
  return line;
}

DoorLine Gone(const std::string& reason) {
  DoorLine line;
  line.mutable_gone()->set_uid(kUid);
  line.mutable_gone()->set_gen(7);
  line.mutable_gone()->set_reason(reason);
  return line;
}

TEST(RouterDrainTest, AnswersDrainedAndClosesWhatIsIdle) {
  std::atomic<int> ended{0};
  TestBed s([&](Peer& peer) {
    CountingActor(peer);
    ++ended;
  });
  Peer client = s.Client();
  client.Send(Get("/"));
  client.ReadAnswer();
  ASSERT_TRUE(s.door.WaitForControls(1));
  s.door.Tell(Drain(4));
  DoorLine line = s.door.Line(1);
  EXPECT_EQ(line.drained().uid(), kUid);
  EXPECT_EQ(line.drained().gen(), 7);
  EXPECT_EQ(line.drained().seq(), 4);
  while (ended == 0) std::this_thread::yield();
  EXPECT_THAT(s.Metrics(), HasSubstr("torpor_router_drain_seconds_count{outcome=\"drained\"} 1"));
}

TEST(RouterDrainTest, ADrainOfSomebodyUnknownIsDrainedAtOnce) {
  TestBed s(CountingActor);
  Peer client = s.Client();
  client.Send(Get("/"));
  client.ReadAnswer();
  ASSERT_TRUE(s.door.WaitForControls(1));
  DoorLine other = Drain(1);
  other.mutable_drain()->set_gen(6);
  s.door.Tell(other);
  EXPECT_EQ(s.door.Line(1).drained().gen(), 6);
}

TEST(RouterDrainTest, TellsHowMuchIsInFlightAndAgainWhenItChanges) {
  std::atomic<bool> asked{false}, head{false}, end{false};
  TestBed s([&](Peer& peer) {
    peer.ReadHead();
    asked = true;
    while (!head) std::this_thread::yield();
    peer.Send("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n");
    while (!end) std::this_thread::yield();
    peer.Send("0\r\n\r\n");
    peer.ReadHead();
  });
  Peer client = s.Client();
  client.Send(Get("/"));
  ASSERT_TRUE(s.door.WaitForControls(1));
  while (!asked) std::this_thread::yield();
  s.door.Tell(Drain(1));
  DoorLine line = s.door.Line(1);
  EXPECT_EQ(line.busy().inflight(), 1);
  EXPECT_EQ(line.busy().streams(), 0);
  EXPECT_EQ(line.busy().seq(), 1);
  head = true;
  line = s.door.Line(2);
  EXPECT_EQ(line.busy().inflight(), 0);
  EXPECT_EQ(line.busy().streams(), 1);
  end = true;
  EXPECT_EQ(s.door.Line(3).drained().seq(), 1);
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
}

TEST(RouterDrainTest, NewRequestsParkAndGoOnAfterUndrain) {
  TestBed s(CountingActor);
  Peer client = s.Client();
  client.Send(Get("/"));
  client.ReadAnswer();
  EXPECT_EQ(s.resolver.calls(), 1);
  ASSERT_TRUE(s.door.WaitForControls(1));
  s.door.Tell(Drain(1, "idle", 0));
  EXPECT_TRUE(s.door.Line(1).has_drained());
  // The control plane is asked anew, and says that it runs; only the door knows that it does.
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(s.resolver.calls(), 2);
  EXPECT_EQ(s.door.connects().size(), 2u) << "no old connection";
  s.door.Tell(Drain(2, "idle", 0));
  EXPECT_TRUE(s.door.Line(2).has_drained());
  s.door.Tell(Undrain());
  // Lines are read in order, so this answer says that the last undrain was, too.
  DoorLine other = Drain(9);
  other.mutable_drain()->set_gen(6);
  s.door.Tell(other);
  EXPECT_EQ(s.door.Line(3).drained().gen(), 6);
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(s.resolver.calls(), 2) << "the cached route is good again";
}

TEST(RouterDrainTest, WhatIsGoneIsAskedForAnew) {
  TestBed s(CountingActor);
  Peer client = s.Client();
  client.Send(Get("/"));
  client.ReadAnswer();
  ASSERT_TRUE(s.door.WaitForControls(1));
  s.door.Tell(Gone("captured"));
  DoorLine other = Drain(9);
  other.mutable_drain()->set_gen(6);
  s.door.Tell(other);
  EXPECT_EQ(s.door.Line(1).drained().gen(), 6);
  s.route.generation = 8;
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(s.resolver.calls(), 2);
  EXPECT_THAT(s.door.connects()[1], HasSubstr(".8.actor.torpor"));
}

TEST(RouterDrainTest, ALostConnectionThatIsNoPauseIsSaidSo) {
  for (bool captured : {true, false}) {
    std::atomic<bool> asked{false}, end{false};
    TestBed s([&](Peer& peer) {
      peer.ReadHead();
      asked = true;
      while (!end) std::this_thread::yield();
    });
    Peer client = s.Client();
    client.Send("POST / HTTP/1.1\r\nHost: " + std::string(kHost) + "\r\nContent-Length: 0\r\n\r\n");
    ASSERT_TRUE(s.door.WaitForControls(1));
    while (!asked) std::this_thread::yield();
    s.door.Tell(Gone(captured ? "captured" : "exited"));
    DoorLine other = Drain(9);
    other.mutable_drain()->set_gen(6);
    s.door.Tell(other);
    EXPECT_EQ(s.door.Line(1).drained().gen(), 6);
    end = true;
    EXPECT_THAT(client.ReadAnswer(),
                HasSubstr(captured ? "torpor-reason: ACTOR_PAUSING" : "ACTOR_CONNECTION_LOST"));
  }
}

TEST(RouterDrainTest, LosingTheControlConnectionMakesRoutesHints) {
  TestBed s(CountingActor);
  Peer client = s.Client();
  client.Send(Get("/"));
  client.ReadAnswer();
  client.Send(Get("/"));
  client.ReadAnswer();
  EXPECT_EQ(s.resolver.calls(), 1);
  ASSERT_TRUE(s.door.WaitForControls(1));
  s.door.Tell(Drain(1));
  EXPECT_TRUE(s.door.Line(1).has_drained());
  s.door.EndControl();
  // It comes again by itself, and by then the loss was noticed.
  ASSERT_TRUE(s.door.WaitForControls(2));
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(s.resolver.calls(), 2);
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_EQ(s.resolver.calls(), 2) << "the drain of a lost door is over";
}

}  // namespace
}  // namespace torpor::router
