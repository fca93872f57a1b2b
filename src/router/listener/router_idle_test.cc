// What keeps an actor awake, and what it may ask for.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

constexpr char kUpgrade[] = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
constexpr char kSwitching[] =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n";

TEST(RouterIdleTest, I13_ASilentWebSocketIsClosedWith1001ThoughItPings) {
  TestBed s([](Peer& peer) {
    peer.ReadHead();
    peer.Send(kSwitching);
    // Pings keep the connection alive, not the actor awake.
    while (peer.Send(std::string("\x89\x00", 2))) std::this_thread::sleep_for(milliseconds(5));
  });
  s.route.idle_limit = milliseconds(100);
  Peer client = s.Client();
  client.Send(Get("/ws", kUpgrade));
  EXPECT_THAT(client.ReadHead(), StartsWith("HTTP/1.1 101"));
  std::string all = client.ReadToEnd();
  EXPECT_THAT(all, StartsWith("\x89"));
  std::string close = all.substr(all.size() - 8);
  EXPECT_EQ(close, std::string("\x88\x06\x03\xe9idle")) << "at the end, between two frames";
  EXPECT_THAT(s.Metrics(), HasSubstr("torpor_router_cut_streams_total{reason=\"idle\"} 1"));
}

TEST(RouterIdleTest, DataFramesKeepAWebSocketOpenAndCountAsActivity) {
  TestBed s([](Peer& peer) {
    peer.ReadHead();
    peer.Send(kSwitching);
    for (int i = 0; i < 5; ++i) {
      EXPECT_EQ(peer.ReadExactly(8), std::string("\x81\x82mask", 6) + "hi");
      peer.Send(std::string("\x81\x02ho", 4));
    }
    peer.WaitClosed();
  });
  s.route.idle_limit = seconds(20);
  Peer client = s.Client();
  client.Send(Get("/ws", kUpgrade));
  client.ReadHead();
  for (int i = 0; i < 5; ++i) {
    client.Send(std::string("\x81\x82mask", 6) + "hi");
    EXPECT_EQ(client.ReadExactly(4), std::string("\x81\x02ho", 4));
  }
  client.Close();
  // Open at first, not open in the end.
  auto reports = s.reporter.WaitForReports(1);
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0].router_id(), "router");
  int open = -1;
  for (size_t n = 1; open != 0 && n < 10; ++n) {
    reports = s.reporter.WaitForReports(n);
    for (const auto& report : reports) {
      for (const auto& activity : report.activities()) {
        EXPECT_EQ(activity.actor_uid(), kUid);
        open = activity.open_streams();
      }
    }
  }
  EXPECT_EQ(open, 0);
}

TEST(RouterIdleTest, ARouterWithoutTrafficSaysThatItIsThere) {
  TestBed s(CountingActor);
  auto reports = s.reporter.WaitForReports(1);
  ASSERT_FALSE(reports.empty());
  EXPECT_EQ(reports[0].activities_size(), 0);
}

TEST(RouterIdleTest, D8_WishesAreHeardAfterTheAnswer) {
  TestBed s([](Peer& peer) {
    peer.ReadHead();
    peer.Send(Ok("x", "torpor-keep-awake: 30\r\n"));
    peer.ReadHead();
    peer.Send(Ok("x", "torpor-keep-awake: soon\r\ntorpor-hibernate: never\r\n"));
    peer.ReadHead();
    peer.Send(Ok("x", "torpor-keep-awake: 99999999\r\n"));
    peer.ReadHead();
    peer.Send(Ok("x", "torpor-hibernate: pause\r\n"));
    peer.ReadHead();
  });
  Peer client = s.Client();
  for (int i = 0; i < 4; ++i) {
    client.Send(Get("/"));
    EXPECT_THAT(client.ReadAnswer(), Not(HasSubstr("torpor-")));
  }
  EXPECT_THAT(s.reporter.WaitForWishes(3),
              ElementsAre(std::string(kUid) + ".7 awake 30", std::string(kUid) + ".7 awake 86400",
                          std::string(kUid) + ".7 pause"));
}

}  // namespace
}  // namespace torpor::router
