#include "bench/open_loop.h"

#include <gtest/gtest.h>

#include "base/sync.h"

namespace torpor::bench {
namespace {

using std::chrono::milliseconds;

LoadResult Result(int64_t due, int64_t sent, int64_t failed, double ms) {
  LoadResult r;
  r.due = due;
  r.sent = sent;
  r.failed = failed;
  r.ms.assign(static_cast<size_t>(sent - failed), ms);
  return r;
}

TEST(OpenLoopTest, ObjectiveLooksAtLatencySuccessAndWhatWasSent) {
  const Objective objective;
  EXPECT_TRUE(Meets(Result(1000, 1000, 1, 25), objective));
  EXPECT_FALSE(Meets(Result(1000, 1000, 0, 25.1), objective));
  EXPECT_FALSE(Meets(Result(1000, 1000, 2, 1), objective));
  EXPECT_TRUE(Meets(Result(1000, 900, 0, 1), objective));
  EXPECT_FALSE(Meets(Result(1000, 899, 0, 1), objective));
  EXPECT_FALSE(Meets(LoadResult(), objective));
}

TEST(OpenLoopTest, SearchEndsCloseBelowTheHighestRate) {
  int tries = 0;
  auto limit_of = [&](double limit) {
    return [&tries, limit](double rate) {
      ++tries;
      return rate <= limit;
    };
  };
  const double found = SearchRate(500, limit_of(7300));
  EXPECT_LE(found, 7300);
  EXPECT_GE(found * 1.05, 7300);
  EXPECT_LE(tries, 12);
  EXPECT_EQ(SearchRate(500, limit_of(400)), 0);
}

// The server stops for the whole of the first request; what was due meanwhile has waited for it.
TEST(OpenLoopTest, TimeIsCountedFromWhenARequestWasDue) {
  constexpr auto kStop = milliseconds(200);
  const LoadPlan plan{100, std::chrono::hours(1), 1};
  std::atomic<int> sent{0};
  LoadResult result = RunLoad(
      plan,
      [&](int64_t, int64_t number) {
        if (number == 0) std::this_thread::sleep_for(kStop);
        ++sent;
        return Outcome();
      },
      [&] { return sent == 2; });
  EXPECT_EQ(result.due, 360000);
  ASSERT_EQ(result.ms.size(), 2u);
  // The second was due after 10 ms and could not begin before the stop was over.
  EXPECT_GE(result.ms[1], ToMs(kStop) - 10);
  EXPECT_EQ(result.failed, 0);
}

TEST(OpenLoopTest, ConnectionsShareTheScheduleAndFailuresAreKept) {
  Mutex mu;
  std::set<int64_t> numbers;
  LoadResult result = RunLoad(
      {1000, milliseconds(50), 5},
      [&](int64_t connection, int64_t number) {
        MutexLock lock(&mu);
        EXPECT_EQ(number % 5, connection);
        EXPECT_TRUE(numbers.insert(number).second);
        Outcome outcome;
        if (number == 7) outcome.status = Status(Code::kUnavailable, "seven");
        return outcome;
      },
      [] { return false; });
  EXPECT_EQ(result.sent, static_cast<int64_t>(numbers.size()));
  EXPECT_EQ(result.failed, numbers.count(7) != 0 ? 1 : 0);
  EXPECT_EQ(result.first_failure, numbers.count(7) != 0 ? "seven" : "");
}

}  // namespace
}  // namespace torpor::bench
