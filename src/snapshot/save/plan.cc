#include "snapshot/save/plan.h"

#include <algorithm>

#include "model/reasons.h"
#include "snapshot/format/tsz_block.h"
#include "snapshot/transfer/buffers.h"

namespace torpor::snapshot {
namespace {

constexpr int64_t kPageBytes = 4096;

int64_t RoundUp(int64_t value, int64_t to) { return (value + to - 1) / to * to; }

}  // namespace

UploadBound BoundOf(const ScanTotals& totals) {
  UploadBound bound;
  bound.data_bytes = totals.bytes;
  bound.block_bytes = TszBlockBytesFor(totals.bytes);
  bound.blocks = (totals.bytes + bound.block_bytes - 1) / bound.block_bytes;
  bound.raw_bytes = std::min(totals.bytes, bound.block_bytes);
  // Dropping every other page makes the most extents; the ends of ranges and blocks add some.
  const int64_t extents = std::min(
      2 * totals.ranges + bound.blocks + totals.bytes / (2 * kPageBytes) + 2, kTszExtentsMax);
  bound.columns_bytes = TszIndexWriter::ColumnsBound(bound.blocks, extents);
  bound.object_bytes = bound.blocks * TszBlockBound(bound.raw_bytes) +
                       TszIndexWriter::FrameBound(bound.blocks, extents) + kTszFooterBytes;
  return bound;
}

UploadBound BoundOfCopy(int64_t object_bytes) {
  UploadBound bound;
  bound.object_bytes = object_bytes;
  return bound;
}

StatusOr<UploadPlan> PlanUpload(const UploadBound& bound, const StoreLimits& store,
                                int64_t budget_bytes) {
  UploadPlan plan;
  plan.object_bytes_max = bound.object_bytes;
  plan.held_bytes_max = std::min(kUploadHeldBytesMax, budget_bytes);
  const int64_t raw = bound.raw_bytes > 0 ? BufferPool::Rounded(bound.raw_bytes) : 0;
  plan.pair_bytes = raw;
  if (bound.blocks > 1) plan.pair_bytes += BufferPool::Rounded(TszBlockBound(bound.raw_bytes));
  if (bound.object_bytes <= kUploadPartBytes) {
    // A single block is compressed where it is sent from, so it needs no buffer of its own.
    plan.path = UploadPath::kSingle;
    plan.part_bytes = BufferPool::Rounded(bound.object_bytes);
    plan.minimum_bytes = plan.part_bytes + plan.pair_bytes + bound.columns_bytes;
    return plan;
  }
  plan.path = UploadPath::kMultipart;
  plan.part_bytes = std::max(
      {kUploadPartBytes, store.part_bytes_min,
       RoundUp((bound.object_bytes + store.parts_max - 1) / store.parts_max, int64_t{1} << 20)});
  if (plan.part_bytes > store.part_bytes_max) {
    return Fail(reasons::kFieldInvalid,
                fmt::format("a file that may need {} bytes of object is too large for the store",
                            bound.object_bytes));
  }
  plan.parts_at_once_max = kUploadPartsAtOnceMax;
  // When the blocks are done, their buffers make room for the index.
  plan.minimum_bytes =
      plan.part_bytes + bound.columns_bytes + std::max(plan.pair_bytes, 2 * bound.columns_bytes);
  plan.held_bytes_max = std::max(plan.held_bytes_max, std::min(plan.minimum_bytes, budget_bytes));
  return plan;
}

}  // namespace torpor::snapshot
