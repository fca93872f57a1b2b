#pragma once
// Whole .tsz objects in memory, written and read the simplest way.

#include <string>

#include "base/testing/matchers.h"
#include "snapshot/format/sha256.h"
#include "snapshot/format/tsz.h"
#include "snapshot/format/tsz_block.h"

namespace torpor::snapshot {

struct TszObject {
  std::string bytes;
  std::string index_sha256;
  int64_t populated_bytes = 0;
};

// What lies behind the blocks, so that a test can put its own index there.
inline TszObject CloseTsz(std::string blocks, const std::string& index_frame) {
  TszObject out;
  out.index_sha256 = Sha256Hex(index_frame);
  const TszFooter footer = TszFooterOf(static_cast<int64_t>(blocks.size()), index_frame);
  out.bytes = std::move(blocks) + index_frame + EncodeTszFooter(footer);
  return out;
}

// The object of a file of `logical_bytes` whose extents are in `index` already.
inline TszObject MakeTszOf(const std::string& populated, TszIndexWriter index,
                           int64_t logical_bytes, int64_t block_bytes) {
  TszBlockEncoder encoder(2);
  std::string blocks;
  for (size_t at = 0; at < populated.size(); at += static_cast<size_t>(block_bytes)) {
    const std::string raw = populated.substr(at, static_cast<size_t>(block_bytes));
    std::string frame(static_cast<size_t>(TszBlockBound(static_cast<int64_t>(raw.size()))), '\0');
    auto bytes = encoder.Encode(raw, frame.data());
    EXPECT_OK(bytes);
    frame.resize(static_cast<size_t>(*bytes));
    index.AddBlock(*bytes, static_cast<int64_t>(raw.size()), TszHashOf(frame));
    blocks += frame;
  }
  auto frame = index.Finish(logical_bytes, block_bytes);
  EXPECT_OK(frame);
  TszObject out = CloseTsz(std::move(blocks), *frame);
  out.populated_bytes = static_cast<int64_t>(populated.size());
  return out;
}

inline TszObject MakeTsz(const std::string& file, int64_t block_bytes = kTszBlockBytesMin) {
  constexpr size_t kPage = 4096;
  static const std::string kZeros(kPage, '\0');
  TszIndexWriter index;
  std::string populated;
  for (size_t at = 0; at < file.size(); at += kPage) {
    const size_t bytes = std::min(kPage, file.size() - at);
    if (file.compare(at, bytes, kZeros, 0, bytes) == 0) continue;
    index.AddExtent(static_cast<int64_t>(at), static_cast<int64_t>(bytes));
    populated.append(file, at, bytes);
  }
  return MakeTszOf(populated, std::move(index), static_cast<int64_t>(file.size()), block_bytes);
}

// The index of an object, checked as a reader checks it.
inline StatusOr<TszIndex> ReadTszIndex(const std::string& object, const std::string& index_sha256,
                                       int64_t logical_bytes) {
  const auto size = static_cast<int64_t>(object.size());
  const size_t footer_bytes = std::min(object.size(), static_cast<size_t>(kTszFooterBytes));
  ASSIGN_OR_RETURN(TszFooter footer,
                   DecodeTszFooter(object.substr(object.size() - footer_bytes), size));
  const std::string frame = object.substr(static_cast<size_t>(footer.index_offset),
                                          static_cast<size_t>(footer.index_bytes));
  RETURN_IF_ERROR(CheckTszIndexChecksum(frame, footer));
  if (Sha256Hex(frame) != index_sha256) return TszCorrupt(footer.index_offset, "sha256");
  return DecodeTszIndex(frame, {logical_bytes, footer.index_offset});
}

inline StatusOr<std::string> ReadTsz(const std::string& object, const std::string& index_sha256,
                                     int64_t logical_bytes) {
  ASSIGN_OR_RETURN(TszIndex index, ReadTszIndex(object, index_sha256, logical_bytes));
  std::string populated(static_cast<size_t>(index.populated_bytes), '\0');
  TszBlockDecoder decoder;
  for (const TszBlock& block : index.blocks) {
    RETURN_IF_ERROR(decoder.Decode(
        block,
        std::string_view(object).substr(static_cast<size_t>(block.offset), block.compressed_bytes),
        populated.data() + block.stream_offset));
  }
  std::string file(static_cast<size_t>(logical_bytes), '\0');
  for (const TszExtent& extent : index.extents) {
    file.replace(static_cast<size_t>(extent.offset), static_cast<size_t>(extent.length), populated,
                 static_cast<size_t>(extent.from), static_cast<size_t>(extent.length));
  }
  return file;
}

}  // namespace torpor::snapshot
