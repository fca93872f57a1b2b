#include "router/listener/timer_wheel.h"

#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "base/testing/matchers.h"
#include "router/listener/options.h"

namespace torpor::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::minutes;
using std::chrono::seconds;

struct Timer : TimerWheel::Entry {
  void OnTimer(MonotonicTime now) override {
    fired.push_back(now);
    if (on_fire) on_fire();
  }
  std::vector<MonotonicTime> fired;
  std::function<void()> on_fire;
};

const MonotonicTime kStart{seconds(1000)};

// Runs the wheel as its owner does: by NextDue.
void RunUntil(TimerWheel* wheel, MonotonicTime until) {
  while (auto due = wheel->NextDue()) {
    if (*due > until) break;
    wheel->Advance(*due);
  }
  wheel->Advance(until);
}

TEST(TimerWheelTest, FiresOnceNeverEarlyAndSoonAfter) {
  for (Duration after :
       {Duration(milliseconds(1)), Duration(milliseconds(20)), Duration(milliseconds(333)),
        Duration(seconds(10)), Duration(seconds(75)), Duration(minutes(15))}) {
    TimerWheel wheel(kStart);
    Timer timer;
    wheel.Set(&timer, kStart + after);
    RunUntil(&wheel, kStart + after - Duration(1));
    EXPECT_TRUE(timer.fired.empty());
    RunUntil(&wheel, kStart + after + TimerWheel::kTick);
    ASSERT_EQ(timer.fired.size(), 1u);
    EXPECT_GE(timer.fired[0], kStart + after);
    EXPECT_FALSE(wheel.NextDue().has_value());
  }
}

TEST(TimerWheelTest, CanBePushedOutPulledInAndCancelled) {
  TimerWheel wheel(kStart);
  Timer timer;
  wheel.Set(&timer, kStart + seconds(1));
  wheel.Set(&timer, kStart + seconds(5));
  RunUntil(&wheel, kStart + seconds(4));
  EXPECT_TRUE(timer.fired.empty());
  wheel.Set(&timer, kStart + milliseconds(4100));
  RunUntil(&wheel, kStart + milliseconds(4200));
  EXPECT_EQ(timer.fired.size(), 1u);
  wheel.Set(&timer, kStart + seconds(5));
  wheel.Cancel(&timer);
  RunUntil(&wheel, kStart + seconds(20));
  EXPECT_EQ(timer.fired.size(), 1u);
}

TEST(TimerWheelTest, EntriesMayChangeTheWheelWhenTheyFire) {
  TimerWheel wheel(kStart);
  auto gone = std::make_unique<Timer>();
  Timer again, killer;
  killer.on_fire = [&] { gone.reset(); };
  again.on_fire = [&] {
    if (again.fired.size() < 3) wheel.Set(&again, again.fired.back() + milliseconds(20));
  };
  wheel.Set(gone.get(), kStart + milliseconds(20));
  wheel.Set(&killer, kStart + milliseconds(20));  // Same slot, handled before `gone`.
  wheel.Set(&again, kStart + milliseconds(20));
  RunUntil(&wheel, kStart + seconds(1));
  EXPECT_EQ(again.fired.size(), 3u);
  EXPECT_EQ(gone, nullptr);
}

TEST(TimerWheelTest, ManyTimersAtRandomAllFireInTime) {
  std::mt19937 random(7);
  TimerWheel wheel(kStart);
  std::vector<std::unique_ptr<Timer>> timers;
  std::vector<MonotonicTime> deadlines;
  MonotonicTime now = kStart;
  for (int i = 0; i < 1000; ++i) {
    timers.push_back(std::make_unique<Timer>());
    deadlines.push_back(now + milliseconds(random() % 40'000));
    wheel.Set(timers.back().get(), deadlines.back());
    now += milliseconds(random() % 50);
    wheel.Advance(now);
  }
  RunUntil(&wheel, now + seconds(41));
  for (size_t i = 0; i < timers.size(); ++i) {
    ASSERT_EQ(timers[i]->fired.size(), 1u) << i;
    EXPECT_GE(timers[i]->fired[0], deadlines[i]) << i;
  }
}

TEST(OptionsTest, PublicListenersNeedToBeWanted) {
  RouterOptions options;
  EXPECT_OK(CheckOptions(options, false));
  for (const char* address : {"127.0.0.1:80", "127.8.0.1:80", "[::1]:80", "localhost:80"}) {
    options.listen = {address};
    EXPECT_OK(CheckOptions(options, false)) << address;
  }
  for (const char* address : {"0.0.0.0:80", "10.0.0.1:80", "[::]:80", "[fe80::1]:80"}) {
    options.listen = {"127.0.0.1:1", address};
    EXPECT_THAT(CheckOptions(options, false), HasCode(Code::kInvalidArgument)) << address;
    EXPECT_THAT(CheckOptions(options, false), MessageHas("--insecure-public")) << address;
    EXPECT_THAT(CheckOptions(options, false), MessageHas("--authorize-tokens-file")) << address;
    EXPECT_OK(CheckOptions(options, true)) << address;
  }
  for (const char* bad : {"", "x", "80", "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "host:80"}) {
    options.listen = {bad};
    EXPECT_THAT(CheckOptions(options, true), HasCode(Code::kInvalidArgument)) << bad;
  }
  options.listen = {"127.0.0.1:0"};
  options.actor_domains = {"Bad_Domain"};
  EXPECT_THAT(CheckOptions(options, false), HasCode(Code::kInvalidArgument));
  options.actor_domains = {"ok.example"};
  options.trusted_proxies = {"10.0.0.0/33"};
  EXPECT_THAT(CheckOptions(options, false), HasCode(Code::kInvalidArgument));
}

TEST(AddressSetTest, KnowsNetworks) {
  AddressSet set;
  ASSERT_OK(set.Add("10.1.0.0/16"));
  ASSERT_OK(set.Add("192.168.1.7"));
  ASSERT_OK(set.Add("fd00::/9"));
  EXPECT_TRUE(set.Contains("10.1.255.255"));
  EXPECT_FALSE(set.Contains("10.2.0.0"));
  EXPECT_TRUE(set.Contains("192.168.1.7"));
  EXPECT_FALSE(set.Contains("192.168.1.8"));
  EXPECT_TRUE(set.Contains("fd7f::1"));
  EXPECT_FALSE(set.Contains("fd80::1"));
  EXPECT_FALSE(set.Contains("not an address"));
  EXPECT_FALSE(AddressSet().Contains("10.1.0.1"));
}

}  // namespace
}  // namespace torpor::router
