#include "snapshot/save/plan.h"

#include "base/testing/matchers.h"

namespace torpor::snapshot {
namespace {

constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;
constexpr int64_t kGiB = 1 << 30;

UploadPlan PlanOf(int64_t data_bytes, int64_t budget, int64_t ranges = 1) {
  auto plan = PlanUpload(BoundOf({data_bytes, data_bytes > 0 ? ranges : 0}), {}, budget);
  EXPECT_OK(plan);
  return *plan;
}

// What an upload takes before its first byte, and what it takes when the budget is idle.
TEST(PlanTest, F6_ReservationsAreWhatTheChosenPathNeeds) {
  struct Case {
    int64_t data_bytes;
    UploadPath path;
    int64_t minimum_max;
    int64_t held_max;
  };
  for (int64_t budget : {512 * kMiB, 16 * kGiB}) {
    for (const Case& c : {
             Case{292 * kMiB, UploadPath::kMultipart, 20 * kMiB, 192 * kMiB},
             Case{611 * kMiB, UploadPath::kMultipart, 20 * kMiB, 192 * kMiB},
             Case{4 * kGiB, UploadPath::kMultipart, 40 * kMiB, 192 * kMiB},
             Case{0, UploadPath::kSingle, 64 * kKiB, 192 * kMiB},
             Case{1, UploadPath::kSingle, 2 + 64 * kKiB, 192 * kMiB},
             Case{300, UploadPath::kSingle, 2 * 300 + 64 * kKiB, 192 * kMiB},
             Case{4 * kKiB, UploadPath::kSingle, (2 * 4 + 64) * kKiB, 192 * kMiB},
             Case{400 * kKiB, UploadPath::kSingle, (2 * 400 + 64) * kKiB, 192 * kMiB},
             Case{kMiB, UploadPath::kSingle, 2 * kMiB + 64 * kKiB, 192 * kMiB},
             Case{15 * kMiB, UploadPath::kSingle, 18 * kMiB, 192 * kMiB},
             Case{16 * kMiB, UploadPath::kMultipart, 20 * kMiB, 192 * kMiB},
         }) {
      const UploadPlan plan = PlanOf(c.data_bytes, budget);
      EXPECT_EQ(plan.path, c.path) << c.data_bytes;
      EXPECT_LE(plan.minimum_bytes, c.minimum_max) << c.data_bytes;
      EXPECT_LE(plan.held_bytes_max, c.held_max) << c.data_bytes;
      EXPECT_GE(plan.held_bytes_max, plan.minimum_bytes) << c.data_bytes;
    }
    EXPECT_GE(16 * kGiB / PlanOf(611 * kMiB, budget).minimum_bytes, 800);
  }
  // At the smallest budget two large files make progress side by side.
  EXPECT_LE(2 * PlanOf(611 * kMiB, 44 * kMiB).minimum_bytes, 44 * kMiB);
}

TEST(PlanTest, PartsGrowWithHugeFilesAndFitTheStore) {
  for (int64_t data : {17 * kMiB, kGiB, 100 * kGiB, 500 * kGiB, 4096 * kGiB}) {
    const UploadPlan plan = PlanOf(data, 512 * kMiB, 1000);
    EXPECT_GE(plan.part_bytes, kUploadPartBytes);
    EXPECT_LE((plan.object_bytes_max + plan.part_bytes - 1) / plan.part_bytes, objstore::kPartsMax);
    EXPECT_EQ(plan.parts_at_once_max, 12);
  }
  EXPECT_EQ(PlanOf(kGiB, 512 * kMiB).part_bytes, 16 * kMiB);
  // A store that takes little.
  StoreLimits small{5 * kMiB, 32 * kMiB, 10};
  EXPECT_OK(PlanUpload(BoundOf({300 * kMiB, 1}), small, kGiB));
  EXPECT_THAT(PlanUpload(BoundOf({400 * kMiB, 1}), small, kGiB), HasCode(Code::kInvalidArgument));
}

TEST(PlanTest, BoundsCoverTheWorstFile) {
  // Every other page is zero: as many extents as can be.
  const UploadBound bound = BoundOf({256 * kMiB, 1});
  EXPECT_EQ(bound.blocks, 256);
  EXPECT_EQ(bound.raw_bytes, kMiB);
  EXPECT_GE(bound.columns_bytes, 32 * 1024 * 6);
  EXPECT_GT(bound.object_bytes, 256 * kMiB);
  // However large a file is, its index keeps the limits of the format.
  const UploadBound huge = BoundOf({4096 * kGiB, 4 << 20});
  EXPECT_LE(huge.columns_bytes, 72 * kMiB);
}

}  // namespace
}  // namespace torpor::snapshot
