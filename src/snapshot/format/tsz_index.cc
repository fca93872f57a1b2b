#include <zstd.h>

#include "model/reasons.h"
#include "snapshot/format/manifest.h"
#include "snapshot/format/tsz.h"
#include "snapshot/format/tsz_block.h"
#include "snapshot/format/tsz_wire.h"

namespace torpor::snapshot {
namespace {

// The columns of the message as they lie there; nothing is copied.
struct Columns {
  uint64_t logical_bytes = 0;
  uint64_t block_bytes = 0;
  std::array<std::string_view, 10> of;  // by field number, 3 to 9
};
enum { kCompressed = 3, kRaw, kHashes, kGaps, kLengths, kSources, kBaseOffsets };

class Parser {
 public:
  Parser(std::string_view bytes, const TszExpected& expected)
      : bytes_(bytes), expected_(expected) {}

  StatusOr<TszIndex> Run() {
    if (static_cast<int64_t>(bytes_.size()) > kTszIndexBytesMax) {
      return Bad(fmt::format("larger than {} bytes", kTszIndexBytesMax));
    }
    RETURN_IF_ERROR(Split());
    RETURN_IF_ERROR(CheckNumbers());
    RETURN_IF_ERROR(ReadBlocks());
    RETURN_IF_ERROR(ReadExtents());
    return std::move(out_);
  }

 private:
  Status Bad(std::string_view what) const {
    return TszCorrupt(expected_.blocks_end, fmt::format("index: {}", what));
  }

  // Fields come in rising order and each once, as every writer of protobuf sends them.
  Status Split() {
    std::string_view rest = bytes_;
    for (uint64_t before = 0; !rest.empty();) {
      uint64_t tag = 0;
      uint64_t value = 0;
      if (!TakeVarint(&rest, &tag) || !TakeVarint(&rest, &value)) return Bad("cut inside a field");
      const uint64_t field = tag >> 3;
      const bool number = field == 1 || field == 2;
      if (field <= before || field > kBaseOffsets || (tag & 7) != (number ? 0 : 2)) {
        return Bad(fmt::format("field {} is not one of version 1", field));
      }
      before = field;
      if (number) {
        (field == 1 ? columns_.logical_bytes : columns_.block_bytes) = value;
        continue;
      }
      if (value > rest.size()) return Bad(fmt::format("field {} is cut", field));
      columns_.of[field] = rest.substr(0, value);
      rest.remove_prefix(value);
    }
    return OkStatus();
  }

  Status CheckNumbers() {
    const bool any = expected_.logical_bytes == kTszAnySize;
    if (columns_.logical_bytes > static_cast<uint64_t>(kSnapshotFileBytesMax) ||
        (!any && columns_.logical_bytes != static_cast<uint64_t>(expected_.logical_bytes))) {
      return Bad(fmt::format("it is of a file of {} bytes, not {}", columns_.logical_bytes,
                             expected_.logical_bytes));
    }
    out_.logical_bytes = static_cast<int64_t>(columns_.logical_bytes);
    if (columns_.block_bytes < static_cast<uint64_t>(kTszBlockBytesMin) ||
        columns_.block_bytes > static_cast<uint64_t>(kTszBlockBytesMax)) {
      return Bad(fmt::format("blocks of {} bytes are not allowed", columns_.block_bytes));
    }
    out_.block_bytes = static_cast<int64_t>(columns_.block_bytes);
    return OkStatus();
  }

  static size_t Count(std::string_view column) {
    return static_cast<size_t>(
        std::count_if(column.begin(), column.end(), [](char c) { return (c & 0x80) == 0; }));
  }

  uint64_t Take(int column) {
    uint64_t value = 0;
    whole_ = TakeVarint(&columns_.of[static_cast<size_t>(column)], &value) && whole_;
    return value;
  }

  Status ReadBlocks() {
    std::string_view hashes = columns_.of[kHashes];
    constexpr size_t kHashBytes = std::tuple_size_v<TszHash>;
    const size_t count = hashes.size() / kHashBytes;
    if (hashes.size() % kHashBytes != 0 || Count(columns_.of[kCompressed]) != count ||
        Count(columns_.of[kRaw]) != count) {
      return Bad("the columns of the blocks differ in length");
    }
    out_.blocks.reserve(count);
    int64_t offset = 0;
    for (size_t i = 0; i < count; ++i) {
      const uint64_t compressed = Take(kCompressed);
      const uint64_t raw = Take(kRaw);
      if (raw < 1 || raw > columns_.block_bytes || compressed < 1 ||
          compressed > static_cast<uint64_t>(TszBlockBound(out_.block_bytes))) {
        return TszCorrupt(
            offset, fmt::format("block {} of {} bytes in {} is not allowed", i, raw, compressed));
      }
      TszBlock block;
      block.offset = offset;
      block.stream_offset = out_.populated_bytes;
      block.compressed_bytes = static_cast<uint32_t>(compressed);
      block.raw_bytes = static_cast<uint32_t>(raw);
      memcpy(block.hash.data(), hashes.data() + i * kHashBytes, kHashBytes);
      out_.blocks.push_back(block);
      offset += block.compressed_bytes;
      out_.populated_bytes += block.raw_bytes;
      if (offset > expected_.blocks_end) {
        return TszCorrupt(block.offset, fmt::format("block {} reaches into the index", i));
      }
      if (out_.populated_bytes > out_.logical_bytes) {
        return TszCorrupt(block.offset,
                          fmt::format("block {} holds more than the {} bytes of its file", i,
                                      out_.logical_bytes));
      }
    }
    if (offset != expected_.blocks_end) {
      return TszCorrupt(
          offset, fmt::format("the blocks end here, the index begins at {}", expected_.blocks_end));
    }
    return whole_ ? OkStatus() : Bad("a number in the columns of the blocks is cut");
  }

  Status ReadExtents() {
    const size_t count = Count(columns_.of[kGaps]);
    if (count > static_cast<size_t>(kTszExtentsMax)) {
      return Bad(fmt::format("{} extents; at most {} are allowed", count, kTszExtentsMax));
    }
    const bool sources = !columns_.of[kSources].empty();
    if (Count(columns_.of[kLengths]) != count ||
        (sources && Count(columns_.of[kSources]) != count)) {
      return Bad("the columns of the extents differ in length");
    }
    out_.extents.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      TszExtent extent;
      RETURN_IF_ERROR(ReadExtent(i, sources, &extent));
      out_.extents.push_back(extent);
    }
    if (stream_ != out_.populated_bytes) {
      return Bad(fmt::format("the extents take {} bytes of the blocks, which hold {}", stream_,
                             out_.populated_bytes));
    }
    for (size_t field = kCompressed; field <= kBaseOffsets; ++field) {
      if (field != kHashes && !columns_.of[field].empty()) whole_ = false;
    }
    return whole_ ? OkStatus() : Bad("the columns of the extents are cut or go on");
  }

  Status ReadExtent(size_t i, bool sources, TszExtent* out) {
    const uint64_t gap = Take(kGaps);
    const uint64_t length = Take(kLengths);
    const uint64_t source = sources ? Take(kSources) : 0;
    auto bad = [&](std::string_view what) {
      return Bad(fmt::format("extent {} behind file offset {}: {}", i, end_, what));
    };
    const auto left = static_cast<uint64_t>(out_.logical_bytes - end_);
    if (gap > left || length < 1 || length > left - gap) {
      return bad(fmt::format("{} bytes after a gap of {} are not inside the file", length, gap));
    }
    out->offset = end_ + static_cast<int64_t>(gap);
    out->length = static_cast<int64_t>(length);
    end_ = out->offset + out->length;
    if (source > static_cast<uint64_t>(expected_.bases)) {
      return bad(fmt::format("it needs base {} and {} bases are given", source, expected_.bases));
    }
    out->source = static_cast<uint32_t>(source);
    if (source == 0) {
      out->from = stream_;
      stream_ += out->length;  // at most the size of the file
    } else {
      RETURN_IF_ERROR(ReadBaseOffset(bad, out));
    }
    const TszExtent* before = out_.extents.empty() ? nullptr : &out_.extents.back();
    if (before != nullptr && gap == 0 && before->source == out->source &&
        before->from + before->length == out->from) {
      return bad("it should be one with the extent before it");
    }
    return OkStatus();
  }

  template <typename Bad>
  Status ReadBaseOffset(const Bad& bad, TszExtent* out) {
    const uint64_t zigzag = Take(kBaseOffsets);
    const auto delta = static_cast<int64_t>((zigzag >> 1) ^ (~(zigzag & 1) + 1));
    const bool far = delta > kSnapshotFileBytesMax || delta < -kSnapshotFileBytesMax;
    out->from = far ? -1 : base_end_ + delta;
    if (out->from < 0 || out->from > kSnapshotFileBytesMax - out->length) {
      return bad("its place in the base is not inside any file");
    }
    base_end_ = out->from + out->length;
    return OkStatus();
  }

  const std::string_view bytes_;
  const TszExpected expected_;
  Columns columns_;
  TszIndex out_;
  bool whole_ = true;  // every number so far was there
  int64_t end_ = 0;    // of the extent before, in the file
  int64_t stream_ = 0;
  int64_t base_end_ = 0;
};

}  // namespace

StatusOr<TszIndex> ParseTszIndex(std::string_view bytes, const TszExpected& expected) {
  return Parser(bytes, expected).Run();
}

namespace {

StatusOr<std::string_view> IndexPayload(std::string_view frame) {
  auto bad = [](std::string_view what) {
    return Fail(reasons::kSnapshotCorrupt, fmt::format("index: {}", what));
  };
  if (frame.size() < kSkippableHeaderBytes || ReadLittleEndian<uint32_t>(frame) != kTszIndexFrame ||
      ReadLittleEndian<uint32_t>(frame.substr(4)) != frame.size() - kSkippableHeaderBytes) {
    return bad("no index frame");
  }
  const std::string_view payload = frame.substr(kSkippableHeaderBytes);
  if (ZSTD_findFrameCompressedSize(payload.data(), payload.size()) != payload.size()) {
    return bad("it is not one whole zstd frame");
  }
  return payload;
}

}  // namespace

StatusOr<int64_t> TszIndexDecodedBytes(std::string_view frame) {
  ASSIGN_OR_RETURN(std::string_view payload, IndexPayload(frame));
  const unsigned long long bytes = ZSTD_getFrameContentSize(payload.data(), payload.size());
  // Also the two values that say that it is not known.
  if (bytes > static_cast<unsigned long long>(kTszIndexBytesMax)) {
    return Fail(
        reasons::kSnapshotCorrupt,
        fmt::format("index: it does not say that it has at most {} bytes", kTszIndexBytesMax));
  }
  return static_cast<int64_t>(bytes);
}

StatusOr<TszIndex> DecodeTszIndex(std::string_view frame, const TszExpected& expected) {
  ASSIGN_OR_RETURN(int64_t size, TszIndexDecodedBytes(frame));
  const std::string_view payload = frame.substr(kSkippableHeaderBytes);
  std::string bytes(static_cast<size_t>(size), '\0');
  const size_t decoded =
      ZSTD_decompress(bytes.data(), bytes.size(), payload.data(), payload.size());
  if (ZSTD_isError(decoded) || decoded != bytes.size()) {
    return TszCorrupt(
        expected.blocks_end,
        fmt::format("index: zstd: {}", ZSTD_isError(decoded) ? ZSTD_getErrorName(decoded)
                                                             : "fewer bytes than declared"));
  }
  return ParseTszIndex(bytes, expected);
}

}  // namespace torpor::snapshot
