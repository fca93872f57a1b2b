#include <xxhash.h>

#include "model/reasons.h"
#include "snapshot/format/tsz.h"
#include "snapshot/format/tsz_wire.h"

namespace torpor::snapshot {
namespace {

constexpr std::string_view kMagic = "TORPTSZ1";
constexpr size_t kPayloadBytes = 40;
static_assert(kSkippableHeaderBytes + kPayloadBytes == kTszFooterBytes);

}  // namespace

Status TszCorrupt(int64_t object_offset, std::string_view what) {
  return Fail(reasons::kSnapshotCorrupt, fmt::format("object offset {}: {}", object_offset, what));
}

std::string EncodeTszFooter(const TszFooter& footer) {
  std::string payload(kMagic);
  AppendLittleEndian<uint32_t>(kTszVersion, &payload);
  AppendLittleEndian<uint32_t>(0, &payload);
  AppendLittleEndian<uint64_t>(static_cast<uint64_t>(footer.index_offset), &payload);
  AppendLittleEndian<uint64_t>(static_cast<uint64_t>(footer.index_bytes), &payload);
  AppendLittleEndian<uint64_t>(footer.index_xxh64, &payload);
  std::string frame;
  AppendSkippableFrame(kTszFooterFrame, payload, &frame);
  return frame;
}

StatusOr<TszFooter> DecodeTszFooter(std::string_view frame, int64_t object_bytes) {
  const int64_t at = object_bytes - kTszFooterBytes;
  if (at < 0) return TszCorrupt(0, fmt::format("{} bytes are too few for a footer", object_bytes));
  if (frame.size() != static_cast<size_t>(kTszFooterBytes)) {
    return TszCorrupt(at, fmt::format("the footer is cut at {} bytes", frame.size()));
  }
  if (ReadLittleEndian<uint32_t>(frame) != kTszFooterFrame ||
      ReadLittleEndian<uint32_t>(frame.substr(4)) != kPayloadBytes) {
    return TszCorrupt(at, "no footer frame");
  }
  std::string_view payload = frame.substr(kSkippableHeaderBytes);
  if (payload.substr(0, kMagic.size()) != kMagic) return TszCorrupt(at, "no .tsz footer");
  payload.remove_prefix(kMagic.size());
  const auto version = ReadLittleEndian<uint32_t>(payload);
  if (version != kTszVersion) {
    return TszCorrupt(at, fmt::format("version {} is not known; this program reads version {}",
                                      version, kTszVersion));
  }
  if (ReadLittleEndian<uint32_t>(payload.substr(4)) != 0) {
    return TszCorrupt(at, "reserved bytes of the footer are set");
  }
  const auto index_offset = ReadLittleEndian<uint64_t>(payload.substr(8));
  const auto index_bytes = ReadLittleEndian<uint64_t>(payload.substr(16));
  // The index ends where the footer begins, so there is no room for anything unnamed.
  if (index_offset > static_cast<uint64_t>(at) ||
      index_bytes != static_cast<uint64_t>(at) - index_offset) {
    return TszCorrupt(at, fmt::format("the index at {}+{} does not end at the footer", index_offset,
                                      index_bytes));
  }
  TszFooter footer;
  footer.index_offset = static_cast<int64_t>(index_offset);
  footer.index_bytes = static_cast<int64_t>(index_bytes);
  footer.index_xxh64 = ReadLittleEndian<uint64_t>(payload.substr(24));
  return footer;
}

TszFooter TszFooterOf(int64_t index_offset, std::string_view index_frame) {
  return {index_offset, static_cast<int64_t>(index_frame.size()),
          XXH64(index_frame.data(), index_frame.size(), 0)};
}

Status CheckTszIndexChecksum(std::string_view frame, const TszFooter& footer) {
  if (static_cast<int64_t>(frame.size()) == footer.index_bytes &&
      XXH64(frame.data(), frame.size(), 0) == footer.index_xxh64) {
    return OkStatus();
  }
  return TszCorrupt(footer.index_offset, "the checksum of the index is not the footer's");
}

int64_t TszBlockBytesFor(int64_t populated_bytes) {
  constexpr int64_t kBlocks = 64 << 10;  // their hashes take 1 MiB of index
  int64_t bytes = kTszBlockBytesDefault;
  while (bytes < kTszBlockBytesMax && populated_bytes / bytes > kBlocks) bytes *= 2;
  return bytes;
}

}  // namespace torpor::snapshot
