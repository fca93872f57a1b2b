#include "snapshot/load/fetch_plan.h"

#include <gtest/gtest.h>

namespace torpor::snapshot {
namespace {

constexpr uint32_t kMiB = 1 << 20;

TszIndex IndexOf(const std::vector<uint32_t>& compressed) {
  TszIndex index;
  int64_t offset = 0;
  for (uint32_t bytes : compressed) {
    TszBlock block;
    block.offset = offset;
    block.compressed_bytes = bytes;
    block.raw_bytes = kMiB;
    index.blocks.push_back(block);
    offset += bytes;
  }
  return index;
}

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

Ranges Planned(const std::vector<uint32_t>& compressed, int64_t at_hand, size_t threads) {
  Ranges out;
  size_t next = 0;
  for (const FetchRange& range : PlanFetch(IndexOf(compressed), at_hand, threads)) {
    EXPECT_EQ(range.first_block, next);
    EXPECT_GT(range.blocks, 0u);
    next += range.blocks;
    out.emplace_back(range.offset, range.bytes);
  }
  return out;
}

TEST(PlanFetchTest, Table) {
  constexpr int64_t kAll = int64_t{1} << 40;
  EXPECT_EQ(Planned({}, kAll, 2), Ranges{});
  EXPECT_EQ(Planned({100, 200}, kAll, 2), (Ranges{{0, 300}}));
  // What came with the end of the object is not asked for again; what came in part is.
  EXPECT_EQ(Planned({100, 200, 300}, 300, 2), (Ranges{{0, 300}}));
  EXPECT_EQ(Planned({100, 200, 300}, 301, 2), (Ranges{{0, 600}}));
  EXPECT_EQ(Planned({100, 200, 300}, 0, 2), Ranges{});
  // Small objects are cut so that every thread has work, large ones into 8 MiB.
  EXPECT_EQ(Planned(std::vector<uint32_t>(8, kMiB), kAll, 2).size(), 4u);
  EXPECT_EQ(Planned(std::vector<uint32_t>(8, kMiB), kAll, 1).size(), 2u);
  EXPECT_EQ(Planned(std::vector<uint32_t>(8, kMiB / 2), kAll, 16).size(), 4u);
  EXPECT_EQ(Planned(std::vector<uint32_t>(256, kMiB), kAll, 2).size(), 32u);
  for (const auto& [offset, bytes] : Planned(std::vector<uint32_t>(999, 700001), kAll, 2)) {
    EXPECT_LE(bytes, kFetchBytesMax);
  }
  // A block that is larger than any request goes alone.
  EXPECT_EQ(Planned({100, 8 * kMiB + 5, 100}, kAll, 1),
            (Ranges{{0, 100}, {100, 8 * kMiB + 5}, {8 * kMiB + 105, 100}}));
}

}  // namespace
}  // namespace torpor::snapshot
