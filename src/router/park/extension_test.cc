// When the budget of a waiting request is extended, and what is told about the wake.

#include <gtest/gtest.h>

#include "router/testing/lot_bed.h"

namespace torpor::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Kind = ParkOutcome::Kind;

class ExtensionTest : public LotTest {};

WakeProgress Cold(Duration elapsed = seconds(29)) {
  return WakeProgress{"start", "durable", elapsed, true};
}

TEST_F(ExtensionTest, AColdWakeExtendsTheBudget) {
  resolver_.set_progress(Cold());
  Slot a = ParkExtensible("x");
  Advance(milliseconds(28'900));
  EXPECT_EQ(resolver_.progress_calls(), 0) << "nobody asks before it matters";
  Advance(seconds(60));
  EXPECT_FALSE(a->has_value());
  AnswerWoken();
  ASSERT_TRUE(a->has_value());
  EXPECT_EQ((*a)->kind, Kind::kRoute);
  EXPECT_GT((*a)->deadline, clock_.Now()) << "there is still time to connect";
}

TEST_F(ExtensionTest, TheExtensionEndsAtTheMaximum) {
  resolver_.set_progress(Cold(seconds(29)));
  Slot a = ParkExtensible("x");
  Advance(milliseconds(119'990));
  EXPECT_FALSE(a->has_value());
  Advance(milliseconds(20));
  ASSERT_TRUE(a->has_value());
  EXPECT_EQ((*a)->kind, Kind::kBudget);
  EXPECT_EQ((*a)->queue_position, 1);
  ASSERT_TRUE((*a)->progress.has_value());
  EXPECT_EQ((*a)->progress->elapsed, seconds(30)) << "as told a second ago, and that second";
  EXPECT_EQ(resolver_.open_calls(), 1u) << "the wake goes on";
  EXPECT_EQ(lot_->stats().parked, 0u);
}

TEST_F(ExtensionTest, TheExtensionEndsWithTheOperation) {
  resolver_.set_progress(Cold());
  Slot a = ParkExtensible("x");
  Advance(seconds(40) - milliseconds(1));
  EXPECT_FALSE(a->has_value());
  resolver_.set_progress(std::nullopt);
  Advance(seconds(6));
  ASSERT_TRUE(a->has_value());
  EXPECT_EQ((*a)->kind, Kind::kBudget);
  EXPECT_FALSE((*a)->progress.has_value());
}

TEST_F(ExtensionTest, WhatWasTrueLongAgoExtendsNothing) {
  resolver_.set_progress(Cold());
  Slot a = ParkExtensible("x");
  Advance(milliseconds(30'001));
  EXPECT_FALSE(a->has_value());
  resolver_.LoseProgress();
  Advance(seconds(5));
  ASSERT_TRUE(a->has_value());
  EXPECT_EQ((*a)->kind, Kind::kBudget);
  EXPECT_FALSE((*a)->progress.has_value());
}

TEST_F(ExtensionTest, OtherWakesExtendNothing) {
  WakeProgress local{"start", "local", seconds(29), false};
  WakeProgress own = Cold();
  own.has_own_budget = true;
  for (const auto& progress :
       {std::optional(local), std::optional(own), std::optional<WakeProgress>()}) {
    resolver_.set_progress(progress);
    Slot a = ParkExtensible("x");
    Advance(milliseconds(30'001));
    ASSERT_TRUE(a->has_value());
    EXPECT_EQ((*a)->kind, Kind::kBudget);
    EXPECT_EQ((*a)->progress.has_value(), progress.has_value());
  }
}

TEST_F(ExtensionTest, ABudgetThatWasAskedForIsKept) {
  resolver_.set_progress(Cold());
  Slot patient = ParkExtensible("x");
  Slot mine = Park("x", seconds(3));
  Advance(milliseconds(2'999));
  EXPECT_FALSE(mine->has_value());
  Advance(milliseconds(2));
  ASSERT_TRUE(mine->has_value());
  EXPECT_EQ((*mine)->kind, Kind::kBudget);
  EXPECT_EQ((*mine)->progress->source, "durable") << "but it is told how far the wake is";
  EXPECT_EQ((*mine)->queue_position, 2);
  Advance(seconds(60));
  EXPECT_FALSE(patient->has_value());
}

TEST_F(ExtensionTest, ManyWaitersAskOnce) {
  resolver_.set_progress(Cold());
  std::vector<Slot> slots;
  for (int i = 0; i < 100; ++i) {
    slots.push_back(ParkExtensible("x"));
    Advance(milliseconds(1));
  }
  Advance(seconds(30));
  EXPECT_EQ(resolver_.progress_calls(), 1);
  Advance(seconds(20));
  EXPECT_LE(resolver_.progress_calls(), 6);
  for (const Slot& slot : slots) EXPECT_FALSE(slot->has_value());
  AnswerWoken();
  for (const Slot& slot : slots) EXPECT_EQ((*slot)->kind, Kind::kRoute);
}

TEST_F(ExtensionTest, ARetryOfAColdWakeKeepsTheExtension) {
  resolver_.set_progress(Cold());
  Slot a = ParkExtensible("x");
  Advance(milliseconds(29'500));
  // The call is lost, the operation is not.
  resolver_.AnswerNext(Error(Code::kDeadlineExceeded, "", "lost"));
  Advance(seconds(1));
  EXPECT_FALSE(a->has_value());
  EXPECT_EQ(resolver_.calls(), 2);
  AnswerWoken();
  EXPECT_EQ((*a)->kind, Kind::kRoute);
}

TEST_F(ExtensionTest, ShortLookupsAskNothing) {
  resolver_.set_progress(Cold());
  Slot a = Park("x", milliseconds(150));
  Advance(milliseconds(151));
  EXPECT_EQ((*a)->kind, Kind::kBudget);
  EXPECT_EQ(resolver_.progress_calls(), 0);
}

}  // namespace
}  // namespace torpor::router
