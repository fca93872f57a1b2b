#include "snapshot/load/fetch_plan.h"

#include <algorithm>

namespace torpor::snapshot {
namespace {

// Smaller requests cost more than they gain.
constexpr int64_t kFetchBytesMin = 1 << 20;

}  // namespace

std::vector<FetchRange> PlanFetch(const TszIndex& index, int64_t at_hand, size_t threads) {
  std::vector<FetchRange> out;
  if (index.blocks.empty()) return out;
  const int64_t all = index.blocks.back().offset + index.blocks.back().compressed_bytes;
  const int64_t request =
      std::clamp(all / (2 * static_cast<int64_t>(threads)), kFetchBytesMin, kFetchBytesMax);
  for (size_t i = 0; i < index.blocks.size() && index.blocks[i].offset < at_hand; ++i) {
    const TszBlock& block = index.blocks[i];
    if (out.empty() || out.back().bytes + block.compressed_bytes > request) {
      out.push_back({block.offset, 0, i, 0});
    }
    out.back().bytes += block.compressed_bytes;
    ++out.back().blocks;
  }
  return out;
}

}  // namespace torpor::snapshot
