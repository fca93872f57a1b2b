#pragma once
// Blocks of a .tsz object: one ordinary zstd frame each, with its content size and a checksum.
//
// An encoder or decoder holds a zstd context and belongs to one thread at a time.

#include <cstdint>
#include <string_view>

#include "base/status.h"
#include "snapshot/format/tsz.h"

struct ZSTD_CCtx_s;
struct ZSTD_DCtx_s;

namespace torpor::snapshot {

// At most how many bytes the frame of a block of `raw_bytes` has.
int64_t TszBlockBound(int64_t raw_bytes);
// The hash that the index keeps of a frame.
TszHash TszHashOf(std::string_view frame);

class TszBlockEncoder {
 public:
  explicit TszBlockEncoder(int zstd_level);
  ~TszBlockEncoder();
  TszBlockEncoder(const TszBlockEncoder&) = delete;
  TszBlockEncoder& operator=(const TszBlockEncoder&) = delete;

  // Writes the frame of `raw` (1 to kTszBlockBytesMax bytes) to `out`, which has TszBlockBound of
  // that; returns its size.
  StatusOr<int64_t> Encode(std::string_view raw, char* out);
  // Most memory of an encoder for blocks of the default size.
  static int64_t MemoryBytes(int zstd_level);

 private:
  ZSTD_CCtx_s* const context_;
  bool ready_ = false;
};

class TszBlockDecoder {
 public:
  TszBlockDecoder();
  ~TszBlockDecoder();
  TszBlockDecoder(const TszBlockDecoder&) = delete;
  TszBlockDecoder& operator=(const TszBlockDecoder&) = delete;

  // Writes the block.raw_bytes of `frame` to `out`. The hash is checked before zstd sees a byte.
  // DATA_LOSS SNAPSHOT_CORRUPT unless it is exactly the frame that the index names.
  Status Decode(const TszBlock& block, std::string_view frame, char* out);
  static int64_t MemoryBytes();

 private:
  ZSTD_DCtx_s* const context_;
};

}  // namespace torpor::snapshot
