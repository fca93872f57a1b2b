#pragma once
// Which ranges of an object are asked for. Pure functions.

#include <cstdint>
#include <vector>

#include "snapshot/format/tsz.h"

namespace torpor::snapshot {

inline constexpr int64_t kFetchBytesMax = 8 << 20;

// Blocks that lie one after the other.
struct FetchRange {
  int64_t offset = 0;
  int64_t bytes = 0;
  size_t first_block = 0;
  size_t blocks = 0;
};

// All blocks that do not lie wholly at or behind `at_hand` in the object: as few requests as
// kFetchBytesMax allows, but so many that `threads` have something to decode. A block that is
// larger than a request goes alone.
std::vector<FetchRange> PlanFetch(const TszIndex& index, int64_t at_hand, size_t threads);

}  // namespace torpor::snapshot
