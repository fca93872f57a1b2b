#include "snapshot/load/read_index.h"

#include <cstring>

#include "model/reasons.h"
#include "snapshot/format/sha256.h"
#include "snapshot/format/tsz_block.h"

namespace torpor::snapshot {

RangeReader ReaderOf(objstore::ObjectStore* store, const std::string& key, int64_t object_bytes,
                     std::function<Status()> check) {
  return [=](int64_t offset, int64_t length, char* out) -> Status {
    int64_t received = 0;
    auto take = [&](std::string_view piece) -> Status {
      if (check) RETURN_IF_ERROR(check());
      if (static_cast<int64_t>(piece.size()) > length - received) {
        return Fail(reasons::kObjectStorageUnavailable, "the store sends more than was asked for");
      }
      memcpy(out + received, piece.data(), piece.size());
      received += static_cast<int64_t>(piece.size());
      return OkStatus();
    };
    auto info = store->Get(key, {offset, length}, take);
    switch (info.status().code()) {
      case Code::kOk:
        break;
      case Code::kNotFound:  // what is missing in a snapshot that is complete is lost
        return Fail(reasons::kFailedGetExternalObject, std::string(info.status().message()));
      case Code::kInvalidArgument:  // the range is behind the end
        return TszCorrupt(
            offset, fmt::format("the object ends before; it should have {} bytes", object_bytes));
      default:
        return info.status();
    }
    if (info->bytes != object_bytes) {
      return TszCorrupt(0,
                        fmt::format("the object has {} bytes, not {}", info->bytes, object_bytes));
    }
    if (received != length) {
      return Fail(
          reasons::kObjectStorageUnavailable,
          fmt::format("object offset {}: the store sent {} of {} bytes", offset, received, length));
    }
    return OkStatus();
  };
}

StatusOr<ObjectTail> ReadTail(const RangeReader& read, int64_t object_bytes) {
  ObjectTail tail;
  tail.offset = std::max<int64_t>(0, object_bytes - kTszTailBytes);
  tail.bytes.resize(static_cast<size_t>(object_bytes - tail.offset));
  RETURN_IF_ERROR(read(tail.offset, object_bytes - tail.offset, tail.bytes.data()));
  const size_t footer_bytes = std::min(tail.bytes.size(), static_cast<size_t>(kTszFooterBytes));
  ASSIGN_OR_RETURN(
      tail.footer,
      DecodeTszFooter(std::string_view(tail.bytes).substr(tail.bytes.size() - footer_bytes),
                      object_bytes));
  if (tail.footer.index_bytes > TszBlockBound(kTszIndexBytesMax) + kTszFooterBytes) {
    return TszCorrupt(tail.footer.index_offset,
                      fmt::format("an index of {} bytes is too large", tail.footer.index_bytes));
  }
  return tail;
}

StatusOr<std::string> ReadIndexFrame(const RangeReader& read, const ObjectTail& tail,
                                     const std::string& index_sha256) {
  const TszFooter& footer = tail.footer;
  const auto missing = static_cast<size_t>(tail.index_missing());
  std::string frame(static_cast<size_t>(footer.index_bytes), '\0');
  if (missing > 0) {
    RETURN_IF_ERROR(read(footer.index_offset, tail.index_missing(), frame.data()));
  }
  const size_t begin = missing > 0 ? 0 : static_cast<size_t>(footer.index_offset - tail.offset);
  memcpy(frame.data() + missing, tail.bytes.data() + begin, frame.size() - missing);
  RETURN_IF_ERROR(CheckTszIndexChecksum(frame, footer));
  if (!index_sha256.empty() && Sha256Hex(frame) != index_sha256) {
    return TszCorrupt(footer.index_offset, "the sha256 of the index is not the manifest's");
  }
  return frame;
}

}  // namespace torpor::snapshot
