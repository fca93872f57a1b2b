// The statistics of comparisons, on numbers made up so that the right answer is known.
#include "bench/ab.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace torpor::bench {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

// `blocks` repeats of ResumeActor around `middle`, with 5 % of noise.
RunResult Side(double middle, uint64_t seed, int blocks) {
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<double> noise(0.95, 1.05);
  RunResult run;
  run.parameters = {{"lifecycle-mode", "pause"}};
  for (int i = 0; i < blocks; ++i) {
    Repeat repeat;
    repeat.seconds = 60;
    Row row;
    row.name = "ResumeActor";
    row.attempts = 40;
    std::vector<double> ms;
    for (int k = 0; k < 40; ++k) ms.push_back(middle * noise(random));
    row.ms = Summarize(ms);
    repeat.rows.push_back(row);
    run.repeats.push_back(repeat);
  }
  return run;
}

const AbMetric& Find(const AbResult& result, const std::string& name) {
  for (const AbMetric& metric : result.metrics) {
    if (metric.name == name) return metric;
  }
  ADD_FAILURE() << "no " << name;
  return result.metrics.at(0);
}

TEST(AbTest, SpecNamesProgramFlagsAndEnvironment) {
  auto spec = ParseSpec("bin=/a/torpor,opt=--worker-actors=3,env=A=b=c,opt=--detach");
  ASSERT_TRUE(spec.ok()) << spec.status();
  EXPECT_EQ(spec->binary, "/a/torpor");
  EXPECT_THAT(spec->flags, testing::ElementsAre("--worker-actors=3", "--detach"));
  EXPECT_THAT(spec->env, testing::ElementsAre("A=b=c"));
  EXPECT_TRUE(ParseSpec("")->binary.empty());
  for (const char* bad : {"bin=", "bin=/a,bin=/b", "opt=worker", "env=A", "env==b", "x=1", ","}) {
    EXPECT_EQ(ParseSpec(bad).status().code(), Code::kInvalidArgument) << bad;
  }
}

TEST(AbTest, OrderIsBalancedAndFromTheSeed) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const std::vector<bool> order = BFirst(seed, 8);
    ASSERT_EQ(order.size(), 8u);
    for (size_t i = 0; i < 8; i += 2) EXPECT_NE(order[i], order[i + 1]);
    EXPECT_EQ(order, BFirst(seed, 8));
  }
  std::set<std::vector<bool>> different;
  for (uint64_t seed = 0; seed < 20; ++seed) different.insert(BFirst(seed, 8));
  EXPECT_GT(different.size(), 3u);
}

TEST(AbTest, BootstrapSurroundsTheMedian) {
  const Interval same = Bootstrap({1.1, 1.1, 1.1, 1.1}, 1);
  EXPECT_DOUBLE_EQ(same.median, 1.1);
  EXPECT_DOUBLE_EQ(same.low, 1.1);
  EXPECT_DOUBLE_EQ(same.high, 1.1);
  const Interval wide = Bootstrap({0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 0.7, 1.0}, 1);
  EXPECT_DOUBLE_EQ(wide.median, 1.0);
  EXPECT_LT(wide.low, 1);
  EXPECT_GT(wide.high, 1);
  EXPECT_FALSE(wide.shows_difference());
  EXPECT_EQ(Bootstrap({}, 1).median, 0);
}

// The same against itself must show no difference, except in about one of twenty comparisons.
TEST(AbTest, SameAgainstItselfShowsNoDifference) {
  int shown = 0;
  constexpr int kRuns = 40;
  for (uint64_t i = 0; i < kRuns; ++i) {
    AbResult result = CompareAb(Side(500, 2 * i + 1, 8), Side(500, 2 * i + 2, 8), i, 1.10);
    EXPECT_THAT(result.void_reasons, IsEmpty());
    EXPECT_THAT(result.regressions, IsEmpty());
    if (Find(result, "ResumeActor p50").ratio.shows_difference()) ++shown;
  }
  EXPECT_LE(shown, 6);
}

TEST(AbTest, RealDifferenceIsShownAndMayFailTheGate) {
  AbResult slower = CompareAb(Side(500, 1, 8), Side(600, 2, 8), 1, 1.10);
  const AbMetric& metric = Find(slower, "ResumeActor p50");
  EXPECT_NEAR(metric.ratio.median, 1.2, 0.03);
  EXPECT_TRUE(metric.ratio.shows_difference());
  EXPECT_THAT(slower.regressions, testing::Contains("ResumeActor p50"));
  EXPECT_THAT(ReportAb(slower), HasSubstr("B is slower"));
  EXPECT_THAT(CompareAb(Side(500, 1, 8), Side(600, 2, 8), 1, 1.5).regressions, IsEmpty());
  EXPECT_THAT(CompareAb(Side(500, 1, 8), Side(600, 2, 8), 1, 0).regressions, IsEmpty());
  AbResult faster = CompareAb(Side(500, 1, 8), Side(400, 2, 8), 1, 1.10);
  EXPECT_THAT(faster.regressions, IsEmpty());
  EXPECT_THAT(ReportAb(faster), HasSubstr("B is faster"));
}

TEST(AbTest, FailuresAndDriftVoidTheComparison) {
  RunResult b = Side(600, 2, 8);
  b.repeats[3].rows[0].failures = 1;
  AbResult failed = CompareAb(Side(500, 1, 8), b, 1, 1.10);
  EXPECT_THAT(failed.void_reasons,
              testing::ElementsAre(HasSubstr("B: 1 of 320 ResumeActor failed")));
  EXPECT_THAT(failed.regressions, IsEmpty()) << "a void comparison judges nothing";
  RunResult a = Side(500, 1, 8);
  Limit drifted;
  drifted.name = "L1";
  drifted.drift = 0.2;
  a.limits = {drifted};
  EXPECT_THAT(CompareAb(a, Side(500, 2, 8), 1, 0).void_reasons,
              testing::ElementsAre(HasSubstr("L1 drifted by +20 %")));
}

TEST(AbTest, ReportHasAColumnForEachSideAndTheImprovement) {
  const std::string text = ReportAb(CompareAb(Side(500, 1, 8), Side(250, 2, 8), 1, 0));
  EXPECT_THAT(text, HasSubstr("metric"));
  EXPECT_THAT(text, testing::ContainsRegex("metric +A +B +improvement"));
  EXPECT_THAT(text, testing::ContainsRegex("ResumeActor P50 / Avg / P95 .*(49|50)(\\.[0-9]+)? %"));
}

}  // namespace
}  // namespace torpor::bench
