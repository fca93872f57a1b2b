#pragma once
// An object from its first block to its last, checked, in little memory: for tools and copies.
//
// Belongs to one thread. Errors as in read_index.h.

#include <functional>
#include <string>

#include "base/status.h"
#include "snapshot/load/read_index.h"

namespace torpor::snapshot {

struct OpenObject {
  RangeReader read;
  int64_t object_bytes = 0;
  TszFooter footer;
  std::string index_sha256;
  TszIndex index;
};

// `index_sha256` may be empty and `logical_bytes` kTszAnySize, when no manifest says them. Extents
// of a base are accepted: their place is known, their bytes are not here.
StatusOr<OpenObject> OpenTsz(RangeReader read, int64_t object_bytes,
                             const std::string& index_sha256, int64_t logical_bytes);

// Every block, decoded, in order.
Status WalkBlocks(const OpenObject& object,
                  const std::function<Status(const TszBlock& block, std::string_view raw)>& visit);

// The whole file in order, holes as zeros. FAILED_PRECONDITION RUNTIME_INCOMPATIBLE when a part of
// it is in a base.
Status WriteFileOf(const OpenObject& object,
                   const std::function<Status(std::string_view piece)>& out);

}  // namespace torpor::snapshot
