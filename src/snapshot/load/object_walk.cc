#include "snapshot/load/object_walk.h"

#include "model/reasons.h"
#include "snapshot/format/sha256.h"
#include "snapshot/format/tsz_block.h"

namespace torpor::snapshot {
namespace {

Status WriteZeros(int64_t bytes, const std::function<Status(std::string_view)>& out) {
  static const std::string kZeros(1 << 20, '\0');
  while (bytes > 0) {
    const auto n = std::min(static_cast<size_t>(bytes), kZeros.size());
    RETURN_IF_ERROR(out(std::string_view(kZeros).substr(0, n)));
    bytes -= static_cast<int64_t>(n);
  }
  return OkStatus();
}

}  // namespace

StatusOr<OpenObject> OpenTsz(RangeReader read, int64_t object_bytes,
                             const std::string& index_sha256, int64_t logical_bytes) {
  OpenObject object;
  object.read = std::move(read);
  object.object_bytes = object_bytes;
  ASSIGN_OR_RETURN(ObjectTail tail, ReadTail(object.read, object_bytes));
  object.footer = tail.footer;
  ASSIGN_OR_RETURN(std::string frame, ReadIndexFrame(object.read, tail, index_sha256));
  object.index_sha256 = Sha256Hex(frame);
  ASSIGN_OR_RETURN(object.index,
                   DecodeTszIndex(frame, {logical_bytes, tail.footer.index_offset, kTszBasesMax}));
  return object;
}

Status WalkBlocks(const OpenObject& object,
                  const std::function<Status(const TszBlock&, std::string_view)>& visit) {
  TszBlockDecoder decoder;
  std::string frame;
  std::string raw;
  for (const TszBlock& block : object.index.blocks) {
    frame.resize(block.compressed_bytes);
    raw.resize(block.raw_bytes);
    RETURN_IF_ERROR(object.read(block.offset, block.compressed_bytes, frame.data()));
    RETURN_IF_ERROR(decoder.Decode(block, frame, raw.data()));
    RETURN_IF_ERROR(visit(block, raw));
  }
  return OkStatus();
}

Status WriteFileOf(const OpenObject& object, const std::function<Status(std::string_view)>& out) {
  for (const TszExtent& extent : object.index.extents) {
    if (extent.source == 0) continue;
    return Fail(reasons::kRuntimeIncompatible,
                fmt::format("{} bytes at file offset {} are in base {}, which is not here",
                            extent.length, extent.offset, extent.source));
  }
  int64_t written = 0;
  auto extent = object.index.extents.begin();
  RETURN_IF_ERROR(WalkBlocks(object, [&](const TszBlock& block, std::string_view raw) -> Status {
    const int64_t end = block.stream_offset + block.raw_bytes;
    while (extent != object.index.extents.end() && extent->from < end) {
      const int64_t from = std::max(extent->from, block.stream_offset);
      const int64_t bytes = std::min(extent->from + extent->length, end) - from;
      const int64_t at = extent->offset + (from - extent->from);
      RETURN_IF_ERROR(WriteZeros(at - written, out));
      RETURN_IF_ERROR(out(
          raw.substr(static_cast<size_t>(from - block.stream_offset), static_cast<size_t>(bytes))));
      written = at + bytes;
      if (extent->from + extent->length > end) break;  // goes on in the next block
      ++extent;
    }
    return OkStatus();
  }));
  return WriteZeros(object.index.logical_bytes - written, out);
}

}  // namespace torpor::snapshot
