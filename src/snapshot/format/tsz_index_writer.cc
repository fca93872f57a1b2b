#include <zstd.h>

#include "base/log.h"
#include "model/reasons.h"
#include "snapshot/format/tsz.h"
#include "snapshot/format/tsz_wire.h"

namespace torpor::snapshot {
namespace {

constexpr int kIndexZstdLevel = 3;
constexpr int64_t kHeadBytes = 128;  // the fields that are no columns, tags and lengths of all

// The bytes of protobuf: a field with wire type 0 or 2.
void AppendNumber(int field, int64_t value, std::string* out) {
  if (value == 0) return;  // as proto3 does
  AppendVarint(static_cast<uint64_t>(field) << 3, out);
  AppendVarint(static_cast<uint64_t>(value), out);
}

void AppendBytes(int field, const std::string& bytes, std::string* out) {
  if (bytes.empty()) return;
  AppendVarint(static_cast<uint64_t>(field) << 3 | 2, out);
  AppendVarint(bytes.size(), out);
  out->append(bytes);
}

uint64_t ZigZag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}

}  // namespace

void TszIndexWriter::AddBlock(int64_t compressed_bytes, int64_t raw_bytes, const TszHash& hash) {
  AppendVarint(static_cast<uint64_t>(compressed_bytes), &compressed_);
  AppendVarint(static_cast<uint64_t>(raw_bytes), &raw_);
  hashes_.append(hash.data(), hash.size());
}

void TszIndexWriter::AddExtent(int64_t offset, int64_t length, uint32_t source,
                               int64_t base_offset) {
  CHECK(length > 0 && offset >= last_.offset + last_.length);
  if (source == 0) {
    base_offset = populated_;
    populated_ += length;
  }
  const bool touches = last_.length > 0 && last_.source == source &&
                       last_.offset + last_.length == offset &&
                       last_.from + last_.length == base_offset;
  if (touches) {
    last_.length += length;
    return;
  }
  FlushExtent();
  last_ = {offset, length, base_offset, source};
  ++extents_;
}

void TszIndexWriter::FlushExtent() {
  if (last_.length == 0) return;
  AppendVarint(static_cast<uint64_t>(last_.offset - written_end_), &gaps_);
  AppendVarint(static_cast<uint64_t>(last_.length), &lengths_);
  written_end_ = last_.offset + last_.length;
  if (last_.source != 0 && !has_bases_) {
    has_bases_ = true;
    sources_.assign(static_cast<size_t>(extents_ - 1), '\0');  // all before came from blocks
  }
  if (!has_bases_) return;
  AppendVarint(last_.source, &sources_);
  if (last_.source == 0) return;
  AppendVarint(ZigZag(last_.from - base_end_), &base_offsets_);
  base_end_ = last_.from + last_.length;
}

int64_t TszIndexWriter::memory_bytes() const {
  return static_cast<int64_t>(compressed_.size() + raw_.size() + hashes_.size() + gaps_.size() +
                              lengths_.size() + sources_.size() + base_offsets_.size());
}

std::string TszIndexWriter::Serialize(int64_t logical_bytes, int64_t block_bytes) {
  FlushExtent();
  last_ = {written_end_, 0, 0, 0};
  std::string out;
  out.reserve(static_cast<size_t>(memory_bytes() + kHeadBytes));
  AppendNumber(1, logical_bytes, &out);
  AppendNumber(2, block_bytes, &out);
  AppendBytes(3, compressed_, &out);
  AppendBytes(4, raw_, &out);
  AppendBytes(5, hashes_, &out);
  AppendBytes(6, gaps_, &out);
  AppendBytes(7, lengths_, &out);
  AppendBytes(8, sources_, &out);
  AppendBytes(9, base_offsets_, &out);
  return out;
}

StatusOr<std::string> TszIndexWriter::Finish(int64_t logical_bytes, int64_t block_bytes) {
  const std::string bytes = Serialize(logical_bytes, block_bytes);
  if (static_cast<int64_t>(bytes.size()) > kTszIndexBytesMax || extents_ > kTszExtentsMax) {
    return Fail(reasons::kInternal,
                fmt::format("an index of {} extents and {} bytes is above the limits of the format",
                            extents_, bytes.size()));
  }
  std::string frame(kSkippableHeaderBytes + ZSTD_compressBound(bytes.size()), '\0');
  const size_t packed =
      ZSTD_compress(frame.data() + kSkippableHeaderBytes, frame.size() - kSkippableHeaderBytes,
                    bytes.data(), bytes.size(), kIndexZstdLevel);
  if (ZSTD_isError(packed)) {
    return Fail(reasons::kInternal, fmt::format("zstd: {}", ZSTD_getErrorName(packed)));
  }
  frame.resize(kSkippableHeaderBytes + packed);
  std::string head;
  AppendLittleEndian<uint32_t>(kTszIndexFrame, &head);
  AppendLittleEndian<uint32_t>(static_cast<uint32_t>(packed), &head);
  frame.replace(0, head.size(), head);
  return frame;
}

int64_t TszIndexWriter::ColumnsBound(int64_t blocks, int64_t extents) {
  // A size of a block takes at most 4 bytes, a gap or length (below 2^43) at most 7.
  return blocks * (4 + 4 + 16) + extents * (7 + 7);
}

int64_t TszIndexWriter::FrameBound(int64_t blocks, int64_t extents) {
  const int64_t bytes = ColumnsBound(blocks, extents) + kHeadBytes;
  return static_cast<int64_t>(kSkippableHeaderBytes +
                              ZSTD_compressBound(static_cast<size_t>(bytes)));
}

}  // namespace torpor::snapshot
