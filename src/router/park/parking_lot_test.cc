// The parking lot with a clock that moves only when the test says so.

#include "router/park/parking_lot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>

#include "router/park/retry.h"
#include "router/testing/lot_bed.h"

namespace torpor::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using Kind = ParkOutcome::Kind;

Status NoCapacity() { return Error(Code::kResourceExhausted, "NO_CAPACITY", "full"); }
Status Crashed() { return Error(Code::kFailedPrecondition, "ACTOR_CRASHED", "crashed"); }

TEST_F(LotTest, OneFlightServesAllInOrder) {
  Slot a = Park("x", seconds(30));
  Slot b = Park("x", seconds(30));
  EXPECT_EQ(resolver_.calls(), 1);
  AnswerWoken();
  ASSERT_TRUE(a->has_value());
  ASSERT_TRUE(b->has_value());
  EXPECT_EQ((*a)->kind, Kind::kRoute);
  EXPECT_EQ((*a)->role, WakeRole::kTriggered);
  ASSERT_NE((*a)->report, nullptr);
  EXPECT_EQ((*a)->report->phases().size(), 2u);
  EXPECT_EQ((*b)->role, WakeRole::kJoined);
  EXPECT_EQ((*b)->report, nullptr);
  EXPECT_THAT(routed_, ElementsAre("x"));
  EXPECT_EQ(lot_->stats().flights, 0u);
}

TEST_F(LotTest, TheLeaderLeavingChangesNothing) {
  Park("x", seconds(30));
  uint64_t leader = last_ticket_;
  Slot b = Park("x", seconds(30));
  lot_->Leave(leader);
  AnswerWoken();
  ASSERT_TRUE(b->has_value());
  EXPECT_EQ((*b)->role, WakeRole::kTriggered);
  EXPECT_EQ(resolver_.calls(), 1);
}

TEST_F(LotTest, AJoinerHasItsOwnBudget) {
  Slot a = Park("x", seconds(5));
  Advance(milliseconds(4900));
  Slot b = Park("x", seconds(5));
  Advance(milliseconds(200));
  ASSERT_TRUE(a->has_value());
  EXPECT_EQ((*a)->kind, Kind::kBudget);
  EXPECT_TRUE((*a)->status.ok()) << "the wake goes on";
  EXPECT_FALSE(b->has_value());
  Advance(milliseconds(4700));
  EXPECT_FALSE(b->has_value());
  AnswerWoken();
  EXPECT_EQ((*b)->kind, Kind::kRoute);
}

TEST_F(LotTest, TheBudgetEndsTheWaitingNotTheWake) {
  Slot a = Park("x", seconds(5));
  Advance(milliseconds(5300));
  EXPECT_EQ((*a)->kind, Kind::kBudget);
  EXPECT_EQ(resolver_.open_calls(), 1u);
  // Who comes now joins the same wake, and its answer fills the route cache.
  Slot b = Park("x", seconds(5));
  EXPECT_EQ(resolver_.calls(), 1);
  AnswerWoken();
  EXPECT_EQ((*b)->kind, Kind::kRoute);
}

TEST_F(LotTest, AnAnswerNobodyWaitsForStillFillsTheCache) {
  Park("x", seconds(5));
  lot_->Leave(last_ticket_);
  EXPECT_EQ(lot_->stats().flights, 1u);
  AnswerWoken();
  EXPECT_THAT(routed_, ElementsAre("x"));
  EXPECT_EQ(lot_->stats().flights, 0u);
}

TEST_F(LotTest, AWakeCarriesTheTraceOfWhoBeganIt) {
  for (const char* trace : {"first", "second"}) {
    ParkingLot::Request request{{"demo", "a"}, clock_.Now() + seconds(10), 1, trace};
    lot_->Park(std::move(request), [](ParkOutcome) {});
  }
  EXPECT_EQ(resolver_.calls(), 1);
  EXPECT_EQ(resolver_.last_trace(), "first");
  AnswerWoken();
}

TEST_F(LotTest, AFailureEndsTheFlightAndANewcomerStartsAnother) {
  Slot a = Park("x", seconds(30));
  resolver_.AnswerNext(Crashed());
  ASSERT_TRUE(a->has_value());
  EXPECT_EQ((*a)->kind, Kind::kFailed);
  EXPECT_EQ(ReasonOf((*a)->status), "ACTOR_CRASHED");
  Slot b = Park("x", seconds(30));
  EXPECT_EQ(resolver_.calls(), 2);
  AnswerRunning();
  EXPECT_EQ((*b)->kind, Kind::kRoute);
  EXPECT_EQ((*b)->role, WakeRole::kNone);
}

TEST_F(LotTest, RetriesInsideTheBudgetAndGivesTheLastReason) {
  Slot a = Park("x", seconds(1));
  resolver_.AnswerNext(NoCapacity());
  EXPECT_FALSE(a->has_value());
  Advance(milliseconds(50));
  EXPECT_EQ(resolver_.calls(), 1);
  Advance(milliseconds(60));
  EXPECT_EQ(resolver_.calls(), 2);
  resolver_.AnswerNext(NoCapacity());
  Advance(milliseconds(160));
  EXPECT_EQ(resolver_.calls(), 3);
  resolver_.AnswerNext(Error(Code::kUnavailable, "", "apiserver away"));
  Advance(milliseconds(250));
  EXPECT_EQ(resolver_.calls(), 4);
  Status slow = NoCapacity();
  SetRetryAfterMs(slow, 5000);
  resolver_.AnswerNext(slow);
  Advance(seconds(1));
  EXPECT_EQ(resolver_.calls(), 4) << "the server asked for 5 s";
  ASSERT_TRUE(a->has_value());
  EXPECT_EQ((*a)->kind, Kind::kBudget);
  EXPECT_EQ(ReasonOf((*a)->status), "NO_CAPACITY");
  EXPECT_EQ(lot_->stats().flights, 0u) << "nobody waits between two attempts";
}

TEST_F(LotTest, TheCallMayQueueForCapacityAsLongAsSomebodyWaits) {
  Park("x", seconds(20));
  EXPECT_EQ(resolver_.last_wait(), seconds(20));
  Park("y", seconds(300));
  EXPECT_EQ(resolver_.last_wait(), seconds(60)) << "the API's limit";
}

TEST_F(LotTest, AFlightAfterARefusedRouteBeginsWithAPause) {
  Slot a = Park("x", seconds(5), 100, milliseconds(200));
  EXPECT_EQ(resolver_.calls(), 0);
  Advance(milliseconds(199));
  EXPECT_EQ(resolver_.calls(), 0);
  Advance(milliseconds(2));
  EXPECT_EQ(resolver_.calls(), 1);
  AnswerRunning();
  EXPECT_EQ((*a)->kind, Kind::kRoute);
  // A pause beyond the budget ends with the budget.
  Slot b = Park("x", milliseconds(100), 100, seconds(1));
  Advance(milliseconds(101));
  EXPECT_EQ((*b)->kind, Kind::kBudget);
  EXPECT_EQ(resolver_.calls(), 1);
}

TEST_F(LotTest, DrainAnswersEverybodyNowAndLater) {
  Slot a = Park("x", seconds(5));
  Slot b = Park("y", seconds(5));
  lot_->Drain();
  EXPECT_EQ((*a)->kind, Kind::kDraining);
  EXPECT_EQ((*b)->kind, Kind::kDraining);
  Slot c = Park("z", seconds(5));
  EXPECT_EQ((*c)->kind, Kind::kDraining);
  AnswerRunning();
  AnswerRunning();
  EXPECT_EQ(lot_->stats().flights, 0u);
}

class SmallLotTest : public LotTest {
 protected:
  SmallLotTest() : LotTest(ParkLimits{4, 3, 1000, milliseconds(100)}) {}
};

TEST_F(SmallLotTest, LookupsOfRunningActorsTakeNoSlot) {
  std::vector<Slot> slots;
  for (int i = 0; i < 20; ++i) slots.push_back(Park("actor" + std::to_string(i), seconds(5)));
  EXPECT_EQ(lot_->stats().parked, 0u);
  EXPECT_EQ(lot_->stats().looking, 20u);
  Advance(milliseconds(99));
  for (int i = 0; i < 20; ++i) AnswerRunning();
  for (const Slot& slot : slots) EXPECT_EQ((*slot)->kind, Kind::kRoute);
}

TEST_F(SmallLotTest, CapsRefuseTheLatestOnceAFlightHasToWait) {
  std::vector<Slot> slots;
  for (int i = 0; i < 5; ++i) slots.push_back(Park("x", seconds(5)));
  Advance(milliseconds(101));
  EXPECT_EQ(lot_->stats().parked, 3u);
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(slots[static_cast<size_t>(i)]->has_value());
  for (int i = 3; i < 5; ++i) {
    auto& outcome = *slots[static_cast<size_t>(i)];
    ASSERT_TRUE(outcome.has_value());
    EXPECT_EQ(outcome->kind, Kind::kFull);
    EXPECT_EQ(outcome->cap, "per_actor");
  }
  Slot late = Park("x", seconds(5));
  EXPECT_EQ((*late)->cap, "per_actor");
  Slot other = Park("y", seconds(5));
  Slot third = Park("z", seconds(5));
  Advance(milliseconds(101));
  EXPECT_FALSE(other->has_value());
  EXPECT_EQ((*third)->cap, "requests");
  // A slot that becomes free is used again.
  AnswerWoken();
  EXPECT_EQ(lot_->stats().parked, 1u);
  Slot again = Park("z", seconds(5));
  EXPECT_FALSE(again->has_value());
}

TEST_F(SmallLotTest, MemoryIsBounded) {
  Slot a = Park("x", seconds(5), 600);
  Slot b = Park("y", seconds(5), 600);
  Advance(milliseconds(101));
  EXPECT_FALSE(a->has_value());
  EXPECT_EQ((*b)->cap, "memory");
  EXPECT_EQ(lot_->stats().memory_bytes, 600u);
}

class NoParkingTest : public LotTest {
 protected:
  NoParkingTest() : LotTest(ParkLimits{0, 1, 0, milliseconds(100)}) {}
};

TEST_F(NoParkingTest, OneAttemptAndNoWaitForCapacity) {
  Slot a = Park("x", seconds(30));
  EXPECT_EQ(resolver_.last_wait(), Duration::zero());
  Advance(milliseconds(500));
  EXPECT_FALSE(a->has_value());
  resolver_.AnswerNext(NoCapacity());
  ASSERT_TRUE(a->has_value());
  EXPECT_EQ((*a)->kind, Kind::kFailed);
  EXPECT_EQ(lot_->stats().flights, 0u);
}

// Random arrivals, departures, answers and time: everybody is answered once, in FIFO order within
// a flight, never after its deadline plus a tick, and no count is left behind.
TEST_F(LotTest, RandomTrafficKeepsTheRules) {
  for (uint32_t seed = 1; seed <= 200; ++seed) {
    Make(ParkLimits{16, 6, 4000, milliseconds(100)});
    FakeResolver& resolver = resolver_;
    std::mt19937 random(seed);
    auto pick = [&](uint32_t n) { return random() % n; };
    struct Sent {
      Slot slot;
      uint64_t ticket;
      MonotonicTime deadline;
      bool left = false;
    };
    std::vector<Sent> sent;
    size_t open_before = resolver.open_calls();
    for (int step = 0; step < 300; ++step) {
      switch (pick(5)) {
        case 0:
        case 1: {
          Duration budget = milliseconds(50 + pick(3000));
          Slot slot = Park("a" + std::to_string(pick(6)), budget, 50 + pick(400));
          sent.push_back({slot, last_ticket_, clock_.Now() + budget});
          break;
        }
        case 2:
          if (!sent.empty()) {
            Sent& one = sent[pick(static_cast<uint32_t>(sent.size()))];
            if (!one.slot->has_value()) {
              lot_->Leave(one.ticket);
              one.left = true;
            }
          }
          break;
        case 3:
          if (resolver.open_calls() > open_before) {
            uint32_t what = pick(4);
            if (what == 0) resolver.AnswerNext(NoCapacity());
            if (what == 1) resolver.AnswerNext(Crashed());
            if (what >= 2) AnswerWoken();
          }
          break;
        default:
          Advance(milliseconds(pick(400)));
      }
      ParkingLot::Stats stats = lot_->stats();
      ASSERT_LE(stats.parked, 16u) << "seed " << seed;
      ASSERT_LE(stats.memory_bytes, 4000u) << "seed " << seed;
      for (const Sent& one : sent) {
        ASSERT_TRUE(one.left || one.slot->has_value() || clock_.Now() <= one.deadline)
            << "seed " << seed << " step " << step;
        ASSERT_FALSE(one.left && one.slot->has_value()) << "seed " << seed;
      }
    }
    Advance(seconds(10));
    while (resolver.open_calls() > open_before) AnswerWoken();
    ParkingLot::Stats stats = lot_->stats();
    EXPECT_EQ(stats.parked + stats.looking + stats.flights + stats.memory_bytes, 0u) << seed;
    timers_.clear();
  }
}

// A control plane with a few slots, which serves who waits in the order of asking.
class SlotResolver : public ActorResolver {
 public:
  using Timer = std::function<void(Duration, std::function<void()>)>;
  SlotResolver(int slots, uint32_t seed, Timer timer)
      : free_(slots), random_(seed), timer_(std::move(timer)) {}

  void Resume(const ActorKey&, Duration wait_for_capacity, const std::string&,
              std::function<void(StatusOr<Answer>)> done) override {
    EXPECT_GT(wait_for_capacity, Duration::zero());
    queue_.push_back(std::move(done));
    Serve();
  }
  void Progress(const ActorKey&,
                std::function<void(StatusOr<std::optional<WakeProgress>>)> done) override {
    done(std::optional<WakeProgress>());
  }
  void Phases(const ActorKey&, const std::string&,
              std::function<void(StatusOr<std::vector<torpor::v1::Phase>>)> done) override {
    done(std::vector<torpor::v1::Phase>());
  }

 private:
  void Serve() {
    while (free_ > 0 && !queue_.empty()) {
      --free_;
      auto done = std::move(queue_.front());
      queue_.pop_front();
      timer_(milliseconds(20 + random_() % 400), [this, done] {
        ++free_;
        Route route;
        route.uid = "u";
        route.generation = 1;
        done(FakeResolver::Woken(std::move(route)));
        Serve();
      });
    }
  }

  int free_;
  std::mt19937 random_;
  const Timer timer_;
  std::deque<std::function<void(StatusOr<Answer>)>> queue_;
};

TEST_F(LotTest, FiveHundredWakesOnFourSlotsOvertakeNobodyOften) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SlotResolver resolver(4, seed, [this](Duration after, std::function<void()> call) {
      timers_.emplace(clock_.Now() + after, std::move(call));
    });
    ParkingLot::Parts parts;
    parts.clock = &clock_;
    parts.resolver = &resolver;
    parts.timer = [this](MonotonicTime when, std::function<void()> call) {
      timers_.emplace(when, std::move(call));
    };
    parts.random01 = [] { return 0.5; };
    parts.on_route = [](const ActorKey&, RoutePtr route) { return route; };
    lot_ = std::make_unique<ParkingLot>(ParkLimits{}, std::move(parts));
    std::mt19937 random(seed);
    std::vector<int> order;  // In which they were served.
    for (int i = 0; i < 500; ++i) {
      ParkingLot::Request request{{"demo", "a" + std::to_string(i)}, clock_.Now() + seconds(120)};
      lot_->Park(std::move(request), [&order, i](const ParkOutcome& outcome) {
        EXPECT_EQ(outcome.kind, Kind::kRoute);
        order.push_back(i);
      });
      Advance(milliseconds(random() % 5));
    }
    Advance(seconds(120));
    ASSERT_EQ(order.size(), 500u);
    for (size_t at = 0; at < order.size(); ++at) {
      auto overtaken = std::count_if(order.begin(), order.begin() + static_cast<ptrdiff_t>(at),
                                     [&](int other) { return other > order[at]; });
      EXPECT_LE(overtaken, 32) << "seed " << seed << " actor " << order[at];
    }
    timers_.clear();
  }
}

TEST(RetryTest, WhatIsTriedAgain) {
  struct {
    Status status;
    bool retry;
  } cases[] = {
      {Error(Code::kResourceExhausted, "NO_CAPACITY", ""), true},
      {Error(Code::kResourceExhausted, "RATE_LIMITED", ""), true},
      {Error(Code::kResourceExhausted, "DISK_FULL", ""), false},
      {Error(Code::kAborted, "OPERATION_IN_PROGRESS", ""), true},
      {Error(Code::kAborted, "SUPERSEDED", ""), true},
      {Error(Code::kUnavailable, "NODE_UNREACHABLE", ""), true},
      {absl::UnavailableError("transport"), true},
      {absl::DeadlineExceededError(""), true},
      {Error(Code::kFailedPrecondition, "ACTOR_CRASHED", ""), false},
      {Error(Code::kFailedPrecondition, "FALLBACK_REFUSED", ""), false},
      {absl::NotFoundError(""), false},
      {absl::InvalidArgumentError(""), false},
      {absl::UnauthenticatedError(""), false},
      {absl::PermissionDeniedError(""), false},
      {absl::DataLossError(""), false},
      {absl::InternalError(""), false},
      {absl::UnimplementedError(""), false},
      {absl::UnknownError(""), false},
  };
  for (const auto& c : cases) EXPECT_EQ(IsRetryableResume(c.status), c.retry) << c.status;
}

TEST(RetryTest, TheScheduleGrowsToTwoSecondsWithFullJitter) {
  struct {
    int attempt;
    double random;
    int64_t ms;
  } cases[] = {{0, 1.0, 100},  {1, 1.0, 150},    {2, 1.0, 225}, {7, 1.0, 1708},
               {8, 1.0, 2000}, {500, 1.0, 2000}, {0, 0.5, 50},  {8, 0.0, 0}};
  for (const auto& c : cases) {
    auto ms = std::chrono::duration_cast<milliseconds>(RetryDelay(c.attempt, c.random, OkStatus()));
    EXPECT_EQ(ms.count(), c.ms) << c.attempt;
  }
  Status status = Error(Code::kAborted, "OPERATION_IN_PROGRESS", "");
  SetRetryAfterMs(status, 250);
  EXPECT_EQ(RetryDelay(0, 0.1, status), milliseconds(250));
  EXPECT_EQ(RetryDelay(8, 1.0, status), milliseconds(2000));
}

}  // namespace
}  // namespace torpor::router
