#pragma once
// A sparse file as one zstd stream: holes are fed as zeros, of which nothing much is left.

#include <cstdint>
#include <functional>
#include <string_view>

#include "base/status.h"
#include "snapshot/transfer/transfer.h"

namespace torpor::snapshot {

struct EncodeOptions {
  int zstd_level = 2;
  int threads = 1;  // that compress one file; above 1 for large files only
};

// At most how many bytes the stream of `logical_bytes` can have.
int64_t EncodedBound(int64_t logical_bytes);

// Reads `fd`, a regular file of `logical_bytes`, and gives its stream to `out` piece by piece.
// Returns the populated bytes (data extents). Memory: a few MiB, and 8 MiB per compressing thread.
// DATA_LOSS SNAPSHOT_CORRUPT when the file is shorter than that.
StatusOr<int64_t> EncodeFile(int fd, int64_t logical_bytes, const EncodeOptions& options,
                             Transfer* transfer,
                             const std::function<Status(std::string_view)>& out);

}  // namespace torpor::snapshot
