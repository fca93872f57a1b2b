#include "bench/stats.h"

#include <gtest/gtest.h>

namespace torpor::bench {
namespace {

std::vector<double> OneTo(int n) {
  std::vector<double> out;
  for (int i = 1; i <= n; ++i) out.push_back(i);
  return out;
}

TEST(StatsTest, PercentileIsTheNearestRank) {
  EXPECT_EQ(Percentile({}, 50), 0);
  EXPECT_EQ(Percentile({7}, 1), 7);
  EXPECT_EQ(Percentile({7}, 99), 7);
  EXPECT_EQ(Percentile(OneTo(4), 50), 2);
  EXPECT_EQ(Percentile(OneTo(5), 50), 3);
  EXPECT_EQ(Percentile(OneTo(20), 95), 19);
  EXPECT_EQ(Percentile(OneTo(100), 99), 99);
  EXPECT_EQ(Percentile(OneTo(101), 99), 100);
  EXPECT_EQ(Percentile(OneTo(10), 100), 10);
}

TEST(StatsTest, SummarySortsAndCounts) {
  Summary s = Summarize({5, 1, 3});
  EXPECT_EQ(s.n, 3);
  EXPECT_EQ(s.min, 1);
  EXPECT_EQ(s.p50, 3);
  EXPECT_EQ(s.mean, 3);
  EXPECT_EQ(s.p99, 5);
  EXPECT_EQ(s.max, 5);
  EXPECT_EQ(Summarize({}).n, 0);
}

TEST(StatsTest, RepeatsAreCombinedByTheirMedian) {
  Summary combined = MedianOfRepeats(
      {Summarize({10, 10, 90}), Summary{}, Summarize({20}), Summarize({30, 30}), Summarize({100})});
  EXPECT_EQ(combined.n, 7);
  EXPECT_EQ(combined.p50, 25);  // of 10, 20, 30, 100; the empty repeat has no median
  EXPECT_EQ(combined.min, 10);
  EXPECT_EQ(combined.max, 100);
}

TEST(StatsTest, FewSamplesAreMarked) {
  EXPECT_EQ(SamplesNeeded(50), 30);
  EXPECT_EQ(SamplesNeeded(75), 40);
  EXPECT_EQ(SamplesNeeded(90), 100);
  EXPECT_EQ(SamplesNeeded(95), 200);
  EXPECT_EQ(SamplesNeeded(99), 1000);
  EXPECT_EQ(FormatPercentile(323.4, 50, 30), "323");
  EXPECT_EQ(FormatPercentile(323.4, 50, 29), "323~");
  EXPECT_EQ(FormatPercentile(323.4, 95, 199), "323~");
  EXPECT_EQ(FormatPercentile(323.4, 95, 200), "323");
  EXPECT_EQ(FormatPercentile(0, 50, 0), "-");
}

TEST(StatsTest, TimesAreShownWithThreeDigits) {
  EXPECT_EQ(FormatMs(0.4149), "0.41");
  EXPECT_EQ(FormatMs(9.996), "10.0");
  EXPECT_EQ(FormatMs(99.96), "100");
  EXPECT_EQ(FormatMs(1697.4), "1,697");
  EXPECT_EQ(FormatMs(1234567), "1,234,567");
}

TEST(StatsTest, RoundsAsThePublicLoadGenerator) {
  EXPECT_EQ(LocustRounded(0.4), 0);
  EXPECT_EQ(LocustRounded(99.4), 99);
  EXPECT_EQ(LocustRounded(147), 150);
  EXPECT_EQ(LocustRounded(3432), 3400);
  EXPECT_EQ(LocustRounded(58760), 59000);
}

TEST(StatsTest, HistogramKeepsThreeDigits) {
  EXPECT_EQ(MakeHistogram({0.9994, 0.9996, 323.449, 323.451, 323.6}),
            (Histogram{{999, 1}, {1000, 1}, {323000, 2}, {324000, 1}}));
}

}  // namespace
}  // namespace torpor::bench
