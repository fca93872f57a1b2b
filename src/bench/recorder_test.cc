#include "bench/recorder.h"

#include <gtest/gtest.h>

namespace torpor::bench {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

Outcome Ok(double ms) {
  Outcome outcome;
  outcome.ms = ms;
  return outcome;
}

Outcome Failed(const std::string& reason) {
  Outcome outcome = Ok(7);
  outcome.status = reason.empty() ? Status(Code::kUnavailable, "broke")
                                  : Error(Code::kUnavailable, reason, "broke");
  outcome.unexplained = reason.empty();
  return outcome;
}

TEST(RecorderTest, OnlyTheWindowIsMeasured) {
  FakeClock clock;
  Recorder recorder(&clock);
  recorder.Add("A", Ok(1));
  recorder.Add("Cold", Ok(2), true);
  recorder.Add("A", Failed("X"));
  recorder.BeginWindow(seconds(10));
  EXPECT_TRUE(recorder.InWindow());
  recorder.Add("A", Ok(5));
  clock.Advance(seconds(10) + milliseconds(4));
  EXPECT_TRUE(recorder.WindowOver());
  recorder.Add("A", Ok(5));  // began before the end
  recorder.Add("A", Ok(3));  // began after it
  Repeat repeat = recorder.Finish();
  EXPECT_EQ(repeat.seconds, 10);
  ASSERT_EQ(repeat.rows.size(), 2u);
  EXPECT_EQ(repeat.rows[0].name, "Cold");
  EXPECT_EQ(repeat.rows[1].attempts, 2);
  EXPECT_EQ(repeat.rows[1].failures, 0);
  EXPECT_DOUBLE_EQ(repeat.rows[1].per_second, 0.2);
  EXPECT_EQ(repeat.warmup_failures, 1);
  EXPECT_EQ(repeat.unexplained, 0);
  EXPECT_EQ(repeat.events.size(), 1u);
}

TEST(RecorderTest, FailuresHaveTheirOwnLatency) {
  FakeClock clock;
  Recorder recorder(&clock);
  recorder.BeginWindow(seconds(10));
  recorder.Add("A", Ok(1));
  recorder.Add("A", Failed(""));
  Outcome corrupt = Failed("");
  corrupt.corrupt = true;
  EXPECT_FALSE(recorder.corrupt());
  recorder.Add("A", corrupt);
  EXPECT_TRUE(recorder.corrupt());
  Repeat repeat = recorder.Finish();
  const Row& row = repeat.rows[0];
  EXPECT_EQ(row.attempts, 3);
  EXPECT_EQ(row.failures, 2);
  EXPECT_EQ(row.ms.n, 1);
  EXPECT_EQ(row.failed_ms.n, 2);
  EXPECT_EQ(repeat.unexplained, 2);
  EXPECT_EQ(repeat.corruptions, 1);
}

TEST(RecorderTest, CycleCountsWhenBothHalvesAreInside) {
  FakeClock clock;
  Recorder recorder(&clock);
  const MonotonicTime early = clock.Now();
  clock.Advance(seconds(1));
  recorder.BeginWindow(seconds(10));
  recorder.AddCycle(early);
  recorder.AddCycle(clock.Now());
  clock.Advance(seconds(10));
  recorder.AddCycle(clock.Now());
  EXPECT_EQ(recorder.Finish().completed_cycles, 1);
}

TEST(RecorderTest, PhasesAreSummedPerOperation) {
  FakeClock clock;
  Recorder recorder(&clock);
  recorder.BeginWindow(seconds(10));
  auto phase = [](const char* name, double start, double ms) {
    torpor::v1::Phase p;
    p.set_component("worker");
    p.set_name(name);
    p.set_start_ms(start);
    p.set_duration_ms(ms);
    return p;
  };
  Outcome outcome = Ok(100);
  outcome.phases = {phase("restore", 30, 50), phase("probe", 80, 2), phase("probe", 85, 3)};
  recorder.Add("ResumeActor", outcome);
  outcome.phases = {phase("restore", 20, 60)};
  recorder.Add("ResumeActor", outcome);
  Row row = recorder.Finish().rows[0];
  ASSERT_EQ(row.phases.size(), 2u);
  EXPECT_EQ(row.phases[0].name, "restore");
  EXPECT_EQ(row.phases[0].start_ms, 20);
  EXPECT_EQ(row.phases[0].ms.mean, 55);
  EXPECT_EQ(row.phases[1].ms.n, 1);
  EXPECT_EQ(row.phases[1].ms.max, 5);
}

}  // namespace
}  // namespace torpor::bench
