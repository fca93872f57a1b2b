#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "router/idle/activity.h"
#include "router/routes/route_cache.h"
#include "router/routes/route_from_api.h"
#include "router/upstream/door.h"

namespace torpor::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

RoutePtr MakeRoute(const std::string& uid, int64_t generation) {
  auto route = std::make_shared<Route>();
  route->uid = uid;
  route->generation = generation;
  route->http.park_budget = seconds(generation);
  return route;
}

TEST(RouteCacheTest, ForgetsByAgeUseAndRefusal) {
  RouteCache cache(2, seconds(30));
  MonotonicTime now{};
  ActorKey a{"d", "a"}, b{"d", "b"}, c{"d", "c"};
  RoutePtr route = MakeRoute("u", 1);
  cache.Put(a, route, now);
  EXPECT_EQ(cache.Find(a, now + milliseconds(29'999)), route);
  EXPECT_EQ(cache.Find(a, now + seconds(30)), nullptr);
  EXPECT_EQ(cache.LastSettings(a).park_budget, seconds(1)) << "known although not usable";
  cache.Put(a, route, now);
  cache.Put(b, MakeRoute("v", 1), now);
  EXPECT_NE(cache.Find(a, now), nullptr);
  cache.Put(c, MakeRoute("w", 1), now);
  EXPECT_EQ(cache.Find(b, now), nullptr) << "least recently used";
  EXPECT_NE(cache.Find(a, now), nullptr);
  EXPECT_EQ(cache.size(), 2u);

  RoutePtr newer = MakeRoute("u", 2);
  cache.Put(a, newer, now);
  cache.Drop(a, route);
  EXPECT_EQ(cache.Find(a, now), newer) << "only the refused one is dropped";
  cache.Put(a, route, now);
  EXPECT_EQ(cache.Find(a, now), newer) << "an older activation does not come back";
  cache.Put(a, MakeRoute("other", 1), now);
  EXPECT_EQ(cache.Find(a, now)->uid, "other") << "the name belongs to a new actor";
  cache.Drop(a, cache.Find(a, now));
  EXPECT_EQ(cache.Find(a, now), nullptr);
}

TEST(RouteCacheTest, ALostDoorMakesItsRoutesUnusable) {
  RouteCache cache(10, seconds(30));
  MonotonicTime now{};
  auto lost = std::make_shared<Route>(*MakeRoute("u", 1));
  lost->door = "unix:/a";
  auto kept = std::make_shared<Route>(*MakeRoute("v", 1));
  kept->door = "unix:/b";
  cache.Put({"d", "a"}, lost, now);
  cache.Put({"d", "b"}, kept, now);
  cache.DropDoor("unix:/a");
  EXPECT_EQ(cache.Find({"d", "a"}, now), nullptr);
  EXPECT_NE(cache.Find({"d", "b"}, now), nullptr);
}

TEST(RouteFromApiTest, TakesPortsAndSettingsFromTheTemplate) {
  ateapi::ActorTemplate t;
  TemplateHttp http = HttpOf(t);
  EXPECT_EQ(http.http_port, 80);
  EXPECT_THAT(http.ports, ::testing::ElementsAre(80));
  EXPECT_FALSE(http.http.first_byte_timeout.has_value());
  t.set_http_port(8080);
  t.add_containers()->mutable_wakeup_probe()->mutable_http_get()->set_port(9000);
  t.add_containers()->mutable_wakeup_probe()->mutable_http_get()->set_port(8080);
  t.add_containers();
  *t.mutable_http()->mutable_first_byte_timeout() = ToProto(Duration::zero());
  t.mutable_http()->set_max_body_bytes(5);
  http = HttpOf(t);
  EXPECT_THAT(http.ports, ::testing::ElementsAre(8080, 9000));
  EXPECT_EQ(http.http.first_byte_timeout, Duration::zero()) << "set to none, not unset";
  EXPECT_EQ(http.http.max_body_bytes, 5);

  ateapi::ResumeActorResponse response;
  ateapi::Actor& actor = *response.mutable_actor();
  actor.mutable_metadata()->set_uid("u");
  actor.mutable_status()->set_state(ateapi::ACTOR_STATE_RUNNING);
  EXPECT_THAT(RouteOf(response, http), HasCode(Code::kUnavailable)) << "no address";
  actor.mutable_status()->mutable_worker_assignment()->set_address("unix:/x");
  actor.mutable_status()->set_generation(9);
  ASSERT_OK_AND_ASSIGN(Route route, RouteOf(response, http));
  EXPECT_EQ(route.generation, 9);
  EXPECT_EQ(route.door, "unix:/x");
  EXPECT_EQ(route.http_port, 8080);
  EXPECT_EQ(route.idle_limit, Duration::zero());
  http.idle_policy.mutable_suspend_after()->set_seconds(60);
  EXPECT_EQ(RouteOf(response, http)->idle_limit, seconds(60));
  http.idle_policy.mutable_pause_after()->set_seconds(8);
  EXPECT_EQ(RouteOf(response, http)->idle_limit, seconds(8));
  actor.mutable_idle_policy()->mutable_pause_after()->set_seconds(0);
  EXPECT_EQ(RouteOf(response, http)->idle_limit, seconds(60)) << "never, says the actor";
  response.set_generation(8);
  EXPECT_EQ(RouteOf(response, http)->generation, 8) << "the activation, not the counter";
  actor.mutable_status()->set_state(ateapi::ACTOR_STATE_PAUSING);
  EXPECT_THAT(RouteOf(response, http), HasCode(Code::kUnavailable));
}

TEST(DoorTest, SpeaksItsProtocol) {
  Route route = *MakeRoute("u-1", 12);
  EXPECT_EQ(DoorRequest(route, 80, "r"),
            "CONNECT u-1.12.actor.torpor:80 HTTP/1.1\r\nHost: u-1.12.actor.torpor:80\r\n"
            "torpor-router: r\r\n\r\n");
  EXPECT_TRUE(ParseDoorAnswer("HTTP/1.1 200 Connection established\r\n\r\n")->open);
  auto no = ParseDoorAnswer(
      "HTTP/1.1 409 No\r\nTorpor-Reason: STALE_GENERATION\r\ntorpor-generation: 13\r\n\r\n");
  EXPECT_FALSE(no->open);
  EXPECT_EQ(no->reason, "STALE_GENERATION");
  EXPECT_EQ(no->generation, 13);
  struct {
    int status;
    const char* reason;
  } cases[] = {{404, "NOT_HERE"},        {409, "STALE_GENERATION"}, {503, "DRAINING"},
               {502, "CONNECT_REFUSED"}, {403, "NO_SUCH_PORT"},     {418, "REFUSED"}};
  for (const auto& c : cases) {
    EXPECT_EQ(ParseDoorAnswer("HTTP/1.1 " + std::to_string(c.status) + " x\r\n\r\n")->reason,
              c.reason);
  }
  EXPECT_FALSE(ParseDoorAnswer("SSH-2.0\r\n\r\n").has_value());
}

TEST(DoorTest, Addresses) {
  for (const char* bad : {"", "unix:", "unix:x", "1.2.3.4", "1.2.3.4:0", "1.2.3.4:x", "host:80",
                          "1.2.3.4:65536", "1.2.3.4:80x"}) {
    EXPECT_FALSE(ParseDoorAddress(bad).ok()) << bad;
  }
  EXPECT_FALSE(ParseDoorAddress("unix:/" + std::string(200, 'x')).ok());
  EXPECT_EQ(ParseDoorAddress("unix:/run/door.sock")->path, "/run/door.sock");
  EXPECT_EQ(ParseDoorAddress("1.2.3.4:80")->port, 80);
  EXPECT_EQ(ParseDoorAddress("[::1]:80")->ip, "::1");
}

TEST(ActivityTest, ReportsWhatChangedAndWhatIsOpen) {
  ActivityTracker tracker;
  WallTime t0(seconds(1000));
  auto cell = tracker.Cell("u", 3);
  EXPECT_EQ(tracker.Cell("u", 3), cell);
  EXPECT_EQ(tracker.Cell("u", 2), cell) << "an older activation does not win";
  EXPECT_EQ(tracker.Collect(t0).activities_size(), 0) << "never used";
  cell->Begin(t0);
  auto report = tracker.Collect(t0 + seconds(5));
  ASSERT_EQ(report.activities_size(), 1);
  EXPECT_EQ(report.activities(0).actor_uid(), "u");
  EXPECT_EQ(report.activities(0).generation(), 3);
  EXPECT_EQ(report.activities(0).open_streams(), 1);
  EXPECT_EQ(FromProto(report.activities(0).last_active_time()), t0 + seconds(5))
      << "in flight is active now";
  EXPECT_TRUE(cell->End(t0 + seconds(6), false, false));
  report = tracker.Collect(t0 + seconds(20));
  ASSERT_EQ(report.activities_size(), 1);
  EXPECT_EQ(FromProto(report.activities(0).last_active_time()), t0 + seconds(6));
  EXPECT_EQ(report.activities(0).open_streams(), 0);
  EXPECT_EQ(tracker.Collect(t0 + seconds(30)).activities_size(), 0) << "nothing new";
}

TEST(ActivityTest, I13_ASilentWebSocketIsOpenButNotActive) {
  ActivityTracker tracker;
  WallTime t0(seconds(1000));
  auto cell = tracker.Cell("u", 3);
  cell->Begin(t0);
  cell->AnswerBegan();
  cell->BecameSocket();
  auto report = tracker.Collect(t0 + seconds(5));
  EXPECT_EQ(FromProto(report.activities(0).last_active_time()), t0);
  EXPECT_EQ(report.activities(0).open_streams(), 1);
  EXPECT_EQ(tracker.Collect(t0 + seconds(6)).activities_size(), 0) << "nothing new";
  cell->Touch(t0 + seconds(7));  // a data frame
  report = tracker.Collect(t0 + seconds(8));
  EXPECT_EQ(FromProto(report.activities(0).last_active_time()), t0 + seconds(7));
  cell->End(t0 + seconds(20), true, true);
  report = tracker.Collect(t0 + seconds(21));
  ASSERT_EQ(report.activities_size(), 1) << "that it ended is news";
  EXPECT_EQ(FromProto(report.activities(0).last_active_time()), t0 + seconds(7));
  EXPECT_EQ(report.activities(0).open_streams(), 0);
}

TEST(ActivityTest, ThePhaseIsThatOfTheActivation) {
  ActivityTracker tracker;
  EXPECT_EQ(tracker.Find("u", 3), nullptr);
  auto cell = tracker.Cell("u", 3);
  EXPECT_EQ(tracker.Find("u", 3), cell);
  EXPECT_EQ(tracker.Find("u", 4), nullptr);
  cell->set_phase(5);
  cell->ServesAgain(4);
  EXPECT_EQ(cell->phase(), 5) << "an older drain";
  cell->ServesAgain(5);
  EXPECT_TRUE(cell->serving());
  cell->Begin(WallTime(seconds(1)));
  auto newer = tracker.Cell("u", 4);
  EXPECT_EQ(tracker.Find("u", 3), cell) << "in use";
  EXPECT_TRUE(newer->serving());
}

TEST(ActivityTest, AnOlderActivationCountsWhileItsRequestsRun) {
  ActivityTracker tracker;
  WallTime t0(seconds(1000));
  auto old_cell = tracker.Cell("u", 3);
  old_cell->Begin(t0);
  old_cell->Begin(t0);
  auto new_cell = tracker.Cell("u", 4);
  EXPECT_NE(new_cell, old_cell);
  EXPECT_EQ(tracker.Collect(t0).activities_size(), 1);
  EXPECT_FALSE(old_cell->End(t0, false, false));
  EXPECT_EQ(tracker.Collect(t0).activities_size(), 1);
  EXPECT_TRUE(old_cell->End(t0, false, false));
  EXPECT_EQ(tracker.Collect(t0).activities_size(), 0);
}

}  // namespace
}  // namespace torpor::router
