#include "snapshot/transfer/resources.h"

#include <thread>

#include "base/testing/matchers.h"

namespace torpor::snapshot {
namespace {

constexpr int64_t kMiB = 1 << 20;

MonotonicTime Later() { return Clock::Real()->Now() + std::chrono::minutes(1); }

TEST(ResourcesTest, BudgetsAndLevels) {
  ResourceOptions options;
  options.memory_budget_bytes = 64 * kMiB - 1;
  auto refused = Resources::Create(options, Clock::Real());
  EXPECT_THAT(refused.status(), HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  EXPECT_THAT(refused.status(), MessageHas("at least 64Mi"));
  options.memory_budget_bytes = 64 * kMiB;
  for (int level = kZstdLevelMin; level <= kZstdLevelMax; ++level) {
    for (size_t threads : {1, 2, 16, 192}) {
      options.zstd_level = level;
      options.threads_max = threads;
      ASSERT_OK_AND_ASSIGN(auto resources, Resources::Create(options, Clock::Real()));
      // Two uploads of large files, or one and a download, always fit.
      EXPECT_GE(resources->memory()->total(), 40 * kMiB) << level << " " << threads;
      EXPECT_GE(resources->threads(), 1u);
      EXPECT_LE(resources->threads(), threads);
    }
  }
  options.zstd_level = 10;
  EXPECT_THAT(Resources::Create(options, Clock::Real()).status(), MessageHas("from -5 to 9"));
}

TEST(BufferPoolTest, BuffersAreUsedAgain) {
  ByteBudget budget(100 * kMiB, Clock::Real());
  BufferPool pool(&budget);
  char* first = nullptr;
  {
    Buffer buffer = pool.Take(kMiB + 1);
    EXPECT_EQ(buffer.size(), kMiB + 4096);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 4096, 0u);
    first = buffer.data();
    buffer.data()[kMiB] = 'x';
  }
  EXPECT_EQ(pool.cached_bytes(), kMiB + 4096);
  Buffer again = pool.Take(kMiB + 2);
  EXPECT_EQ(again.data(), first);
  EXPECT_EQ(pool.cached_bytes(), 0);
  Buffer other = pool.Take(2 * kMiB);
  EXPECT_NE(other.data(), first);
  Buffer moved = std::move(other);
  EXPECT_EQ(other.size(), 0);  // NOLINT: what a move leaves is stated
  EXPECT_EQ(moved.size(), 2 * kMiB);
}

TEST(BufferPoolTest, WhatIsKeptAndReservedStaysInTheBudget) {
  ByteBudget budget(100 * kMiB, Clock::Real());
  Transfer transfer(Clock::Real(), Later());
  BufferPool pool(&budget);
  {
    std::vector<Buffer> buffers;
    for (int i = 0; i < 10; ++i) buffers.push_back(pool.Take(10 * kMiB));
  }
  EXPECT_EQ(pool.cached_bytes(), 60 * kMiB);  // at most kCachedBytesMax
  ASSERT_OK_AND_ASSIGN(auto hold, budget.Admit(Urgency::kUpload, 75 * kMiB, transfer));
  Buffer small = pool.Take(kMiB);
  EXPECT_EQ(pool.cached_bytes(), 20 * kMiB);
}

TEST(CodecsTest, NoMoreAtOnceThanPlaces) {
  Codecs codecs(2, 1, Clock::Real());
  Transfer transfer(Clock::Real(), Later());
  std::atomic<int> inside{0};
  std::atomic<int> most{0};
  EXPECT_OK(RunLegs(60, 8, &transfer, [&](size_t i) -> Status {
    ASSIGN_OR_RETURN(Codecs::Place place,
                     codecs.Enter(i % 2 == 0 ? Urgency::kDownload : Urgency::kUpload, transfer));
    const int now = ++inside;
    int seen = most;
    while (now > seen && !most.compare_exchange_weak(seen, now)) {
    }
    const std::string raw(10000, static_cast<char>('a' + i % 20));
    std::string frame(static_cast<size_t>(TszBlockBound(10000)), '\0');
    ASSIGN_OR_RETURN(int64_t bytes, place.encoder().Encode(raw, frame.data()));
    TszBlock block;
    block.compressed_bytes = static_cast<uint32_t>(bytes);
    block.raw_bytes = 10000;
    frame.resize(static_cast<size_t>(bytes));
    block.hash = TszHashOf(frame);
    std::string back(10000, '\0');
    RETURN_IF_ERROR(place.decoder().Decode(block, frame, back.data()));
    EXPECT_EQ(back, raw);
    --inside;
    return OkStatus();
  }));
  EXPECT_LE(most, 2);
  Transfer cancelled(Clock::Real(), Later());
  cancelled.Cancel();
  EXPECT_THAT(codecs.Enter(Urgency::kUpload, cancelled).status(), HasCode(Code::kCancelled));
}

}  // namespace
}  // namespace torpor::snapshot
