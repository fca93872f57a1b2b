#include "snapshot/format/tsz_block.h"

#define ZSTD_STATIC_LINKING_ONLY  // for the estimates of memory
#include <zstd.h>

#include "base/log.h"
#include "model/reasons.h"
#include "snapshot/format/sha256.h"

namespace torpor::snapshot {

int64_t TszBlockBound(int64_t raw_bytes) {
  return static_cast<int64_t>(ZSTD_compressBound(static_cast<size_t>(raw_bytes)));
}

TszHash TszHashOf(std::string_view frame) {
  Sha256 sha;
  sha.Update(frame);
  TszHash hash;
  memcpy(hash.data(), sha.Finish().data(), hash.size());
  return hash;
}

TszBlockEncoder::TszBlockEncoder(int zstd_level) : context_(ZSTD_createCCtx()) {
  ready_ = context_ != nullptr &&
           !ZSTD_isError(ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, zstd_level)) &&
           !ZSTD_isError(ZSTD_CCtx_setParameter(context_, ZSTD_c_checksumFlag, 1));
}

TszBlockEncoder::~TszBlockEncoder() { ZSTD_freeCCtx(context_); }

StatusOr<int64_t> TszBlockEncoder::Encode(std::string_view raw, char* out) {
  if (!ready_) return Fail(reasons::kInternal, "zstd gives no context");
  const size_t bytes =
      ZSTD_compress2(context_, out, ZSTD_compressBound(raw.size()), raw.data(), raw.size());
  if (ZSTD_isError(bytes)) {
    return Fail(reasons::kInternal, fmt::format("zstd: {}", ZSTD_getErrorName(bytes)));
  }
  return static_cast<int64_t>(bytes);
}

int64_t TszBlockEncoder::MemoryBytes(int zstd_level) {
  return static_cast<int64_t>(
      ZSTD_estimateCCtxSize_usingCParams(ZSTD_getCParams(zstd_level, kTszBlockBytesDefault, 0)));
}

TszBlockDecoder::TszBlockDecoder() : context_(ZSTD_createDCtx()) {}

TszBlockDecoder::~TszBlockDecoder() { ZSTD_freeDCtx(context_); }

Status TszBlockDecoder::Decode(const TszBlock& block, std::string_view frame, char* out) {
  if (context_ == nullptr) return Fail(reasons::kInternal, "zstd gives no context");
  auto bad = [&](std::string_view what) { return TszCorrupt(block.offset, what); };
  if (frame.size() != block.compressed_bytes) {
    return bad(fmt::format("the block has {} bytes, not {}", frame.size(), block.compressed_bytes));
  }
  if (TszHashOf(frame) != block.hash) {
    return bad("the sha256 of the block is not the one in the index");
  }
  ZSTD_frameHeader header;
  if (ZSTD_getFrameHeader(&header, frame.data(), frame.size()) != 0 ||
      header.frameType != ZSTD_frame || header.frameContentSize != block.raw_bytes ||
      header.checksumFlag == 0 || header.dictID != 0 ||
      header.windowSize > static_cast<unsigned long long>(kTszBlockBytesMax)) {
    return bad("the block is not a zstd frame of the size, window and checksum of this format");
  }
  if (ZSTD_findFrameCompressedSize(frame.data(), frame.size()) != frame.size()) {
    return bad("the block is not one whole zstd frame");
  }
  const size_t bytes =
      ZSTD_decompressDCtx(context_, out, block.raw_bytes, frame.data(), frame.size());
  if (ZSTD_isError(bytes)) return bad(fmt::format("zstd: {}", ZSTD_getErrorName(bytes)));
  if (bytes != block.raw_bytes) {
    return bad(fmt::format("the block holds {} bytes, not {}", bytes, block.raw_bytes));
  }
  return OkStatus();
}

int64_t TszBlockDecoder::MemoryBytes() { return static_cast<int64_t>(ZSTD_estimateDCtxSize()); }

}  // namespace torpor::snapshot
