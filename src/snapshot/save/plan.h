#pragma once
// How an object is uploaded and what memory that takes: the one place that decides. Pure functions.

#include <cstdint>

#include "base/status.h"
#include "objstore/object_store.h"
#include "snapshot/save/scan.h"

namespace torpor::snapshot {

// The most that writing a file as .tsz can come to.
struct UploadBound {
  int64_t object_bytes = 0;
  int64_t data_bytes = 0;  // to read
  int64_t blocks = 0;
  int64_t block_bytes = 0;    // of the format
  int64_t raw_bytes = 0;      // of the largest block
  int64_t columns_bytes = 0;  // of the index while it is collected
};
UploadBound BoundOf(const ScanTotals& totals);
// Of an object that is there already and is only copied.
UploadBound BoundOfCopy(int64_t object_bytes);

struct StoreLimits {
  int64_t part_bytes_min = objstore::kPartBytesMin;
  int64_t part_bytes_max = int64_t{5} << 30;
  int64_t parts_max = objstore::kPartsMax;
};

enum class UploadPath { kSingle, kMultipart };  // one Put of everything, or parts

inline constexpr int64_t kUploadPartBytes = 16 << 20;
inline constexpr int64_t kUploadHeldBytesMax = 192 << 20;  // by one file
inline constexpr int kUploadPartsAtOnceMax = 12;

struct UploadPlan {
  UploadPath path = UploadPath::kSingle;
  int64_t object_bytes_max = 0;  // more is an error of the plan
  int64_t part_bytes = 0;        // of all parts but the last; of the whole object when single
  int parts_at_once_max = 1;
  int64_t pair_bytes = 0;      // of a block and its frame, each one more buffer
  int64_t minimum_bytes = 0;   // with which the upload surely ends
  int64_t held_bytes_max = 0;  // more is never taken
};

// INVALID_ARGUMENT when the object needs more or larger parts than the store takes.
StatusOr<UploadPlan> PlanUpload(const UploadBound& bound, const StoreLimits& store,
                                int64_t budget_bytes);

}  // namespace torpor::snapshot
