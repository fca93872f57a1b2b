#pragma once
// A parking lot with a clock that moves only when the test says so.

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "router/park/parking_lot.h"
#include "router/testing/fake_resolver.h"

namespace torpor::router {

// One outcome per request; null while it waits.
using Slot = std::shared_ptr<std::optional<ParkOutcome>>;

class LotTest : public ::testing::Test {
 protected:
  explicit LotTest(ParkLimits limits = {}) { Make(limits); }
  void Make(ParkLimits limits) {
    ParkingLot::Parts parts;
    parts.clock = &clock_;
    parts.resolver = &resolver_;
    parts.timer = [this](MonotonicTime when, std::function<void()> call) {
      timers_.emplace(when, std::move(call));
    };
    parts.random01 = [] { return 0.999; };
    parts.on_route = [this](const ActorKey& key, RoutePtr route) {
      routed_.push_back(key.actor);
      return route;
    };
    lot_ = std::make_unique<ParkingLot>(limits, std::move(parts));
  }

  Slot Park(const std::string& actor, Duration budget, size_t bytes = 100, Duration not_before = {},
            Duration budget_max = {}) {
    auto slot = std::make_shared<std::optional<ParkOutcome>>();
    ParkingLot::Request request{{"demo", actor}, clock_.Now() + budget, bytes, {}};
    if (not_before > Duration::zero()) request.not_before = clock_.Now() + not_before;
    if (budget_max > Duration::zero()) request.extend_until = clock_.Now() + budget_max;
    last_ticket_ = lot_->Park(std::move(request), [slot](ParkOutcome outcome) {
      EXPECT_FALSE(slot->has_value()) << "answered twice";
      *slot = std::move(outcome);
    });
    return slot;
  }
  // Moves the clock, stopping at every timer on the way.
  void Advance(Duration by) {
    MonotonicTime until = clock_.Now() + by;
    while (!timers_.empty() && timers_.begin()->first <= until) {
      auto timer = timers_.extract(timers_.begin());
      if (timer.key() > clock_.Now()) clock_.Advance(timer.key() - clock_.Now());
      timer.mapped()();
    }
    clock_.Advance(until - clock_.Now());
  }
  // With the default budget and its maximum.
  Slot ParkExtensible(const std::string& actor) {
    return Park(actor, std::chrono::seconds(30), 100, {}, std::chrono::seconds(120));
  }
  void AnswerWoken() { resolver_.AnswerNext(FakeResolver::Woken(SomeRoute())); }
  void AnswerRunning() { resolver_.AnswerNext(FakeResolver::Running(SomeRoute())); }
  static Route SomeRoute() {
    Route route;
    route.uid = "u";
    route.generation = 1;
    return route;
  }

  FakeClock clock_;
  FakeResolver resolver_;
  std::multimap<MonotonicTime, std::function<void()>> timers_;
  std::vector<std::string> routed_;
  std::unique_ptr<ParkingLot> lot_;
  uint64_t last_ticket_ = 0;
};

}  // namespace torpor::router
