#include "snapshot/transfer/transfer.h"

#include <thread>

#include "base/testing/matchers.h"

namespace torpor::snapshot {
namespace {

MonotonicTime Later() { return Clock::Real()->Now() + std::chrono::minutes(1); }

TEST(TransferTest, SaysWhyItEnds) {
  FakeClock clock;
  Transfer transfer(&clock, clock.Now() + std::chrono::seconds(5));
  EXPECT_OK(transfer.Check());
  clock.Advance(std::chrono::seconds(5));
  EXPECT_THAT(transfer.Check(), HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  transfer.Cancel();
  EXPECT_THAT(transfer.Check(), HasReason(Code::kCancelled, "CANCELLED"));
}

TEST(RunLegsTest, RunsAllAndKeepsTheFirstError) {
  Transfer good(Clock::Real(), Later());
  std::atomic<int> ran{0};
  EXPECT_OK(RunLegs(100, 4, &good, [&](size_t) {
    ++ran;
    return OkStatus();
  }));
  EXPECT_EQ(ran, 100);

#ifdef TORPOR_THREAD_SANITIZER
  constexpr int kRounds = 40;
#else
  constexpr int kRounds = 500;
#endif
  for (int round = 0; round < kRounds; ++round) {
    Transfer bad(Clock::Real(), Later());
    Status status = RunLegs(100, 16, &bad, [&](size_t i) {
      if (i == 3) return Error(Code::kDataLoss, "SNAPSHOT_CORRUPT", "three");
      // The others end because of it, and their errors do not hide it.
      while (i > 3 && bad.Check().ok()) {
      }
      return i > 3 ? bad.Check() : OkStatus();
    });
    ASSERT_THAT(status, HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT")) << round;
  }
  EXPECT_OK(RunLegs(0, 4, &good, [](size_t) { return OkStatus(); }));
}

}  // namespace
}  // namespace torpor::snapshot
