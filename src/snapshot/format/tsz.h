#pragma once
// The object format .tsz, version 1: zstd frames with a file's populated bytes, an index, a footer.
//
//   blocks   ordinary zstd frames, one block each (tsz_block.h)
//   index    skippable frame: zstd-compressed torpor.snapshot.v1.Index
//   footer   skippable frame of 48 bytes: where the index lies
//
// docs/formats/tsz.md describes every byte. Pure functions, thread-safe; sizes and offsets are
// bytes. Readers take nothing on trust: every bound is checked before anything is allocated by it,
// and a violation is DATA_LOSS SNAPSHOT_CORRUPT with the offset in the object or in the file and
// what is wrong there; the caller adds the name.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace torpor::snapshot {

inline constexpr uint32_t kTszVersion = 1;
inline constexpr int64_t kTszFooterBytes = 48;
// A reader asks for this much of an object's end first.
inline constexpr int64_t kTszTailBytes = 64 << 10;

inline constexpr int64_t kTszBlockBytesMin = 256 << 10;
inline constexpr int64_t kTszBlockBytesMax = 8 << 20;
inline constexpr int64_t kTszBlockBytesDefault = 1 << 20;
inline constexpr int64_t kTszIndexBytesMax = 64 << 20;  // decoded
inline constexpr int64_t kTszExtentsMax = 4 << 20;
inline constexpr int kTszBasesMax = 16;
// Most memory of a decoded index and of decoding it, per decoded byte: an extent of two bytes
// becomes a TszExtent.
inline constexpr int64_t kTszIndexMemoryFactor = 17;

using TszHash = std::array<char, 16>;  // the first bytes of a SHA-256

struct TszFooter {
  int64_t index_offset = 0;
  int64_t index_bytes = 0;  // of its whole frame
  uint64_t index_xxh64 = 0;
};

std::string EncodeTszFooter(const TszFooter& footer);
// `frame` is the last kTszFooterBytes of an object of `object_bytes`.
StatusOr<TszFooter> DecodeTszFooter(std::string_view frame, int64_t object_bytes);

struct TszBlock {
  int64_t offset = 0;         // in the object
  int64_t stream_offset = 0;  // of its first raw byte among all populated bytes
  uint32_t compressed_bytes = 0;
  uint32_t raw_bytes = 0;
  TszHash hash{};  // of the compressed bytes
  bool operator==(const TszBlock&) const = default;
};

struct TszExtent {
  int64_t offset = 0;  // in the file
  int64_t length = 0;
  int64_t from = 0;     // among all populated bytes, or in the base
  uint32_t source = 0;  // 0 = the blocks, k = base k
  bool operator==(const TszExtent&) const = default;
};

struct TszIndex {
  int64_t logical_bytes = 0;
  int64_t block_bytes = 0;
  int64_t populated_bytes = 0;     // in the blocks
  std::vector<TszBlock> blocks;    // in the order of the object
  std::vector<TszExtent> extents;  // in the order of the file
  bool operator==(const TszIndex&) const = default;
};

// For tools that have an object and no manifest.
inline constexpr int64_t kTszAnySize = -1;

// What the index must agree with.
struct TszExpected {
  int64_t logical_bytes = 0;  // or kTszAnySize
  int64_t blocks_end = 0;     // where the blocks end in the object: TszFooter.index_offset
  int bases = 0;              // that are at hand
};

// How many bytes the index in `frame` has when decoded; reads the header only. For whoever reserves
// memory first: kTszIndexMemoryFactor times that is enough for DecodeTszIndex.
StatusOr<int64_t> TszIndexDecodedBytes(std::string_view frame);
// `frame` is the whole index frame; its hash was checked against the manifest before.
StatusOr<TszIndex> DecodeTszIndex(std::string_view frame, const TszExpected& expected);
// The same from the decoded protobuf bytes.
StatusOr<TszIndex> ParseTszIndex(std::string_view bytes, const TszExpected& expected);

// Collects an index while its object is written; a few bytes per extent. Belongs to one thread.
class TszIndexWriter {
 public:
  void AddBlock(int64_t compressed_bytes, int64_t raw_bytes, const TszHash& hash);
  // In the order of the file, not overlapping. Neighbours that touch and come from the same place
  // become one extent. `base_offset` counts for a base only.
  void AddExtent(int64_t offset, int64_t length, uint32_t source = 0, int64_t base_offset = 0);
  int64_t populated_bytes() const { return populated_; }
  int64_t extents() const { return extents_; }
  // What the columns hold; Finish needs three times that for a moment.
  int64_t memory_bytes() const;

  // The protobuf bytes, and the whole frame.
  std::string Serialize(int64_t logical_bytes, int64_t block_bytes);
  StatusOr<std::string> Finish(int64_t logical_bytes, int64_t block_bytes);

  // Most bytes of the columns and of the frame for so many blocks and extents.
  static int64_t ColumnsBound(int64_t blocks, int64_t extents);
  static int64_t FrameBound(int64_t blocks, int64_t extents);

 private:
  void FlushExtent();

  std::string compressed_, raw_, hashes_;
  std::string gaps_, lengths_, sources_, base_offsets_;
  TszExtent last_;  // not written yet, while length > 0
  int64_t written_end_ = 0;
  int64_t base_end_ = 0;
  int64_t extents_ = 0;
  int64_t populated_ = 0;
  bool has_bases_ = false;
};

// Footer for an index frame that lies at `index_offset`.
TszFooter TszFooterOf(int64_t index_offset, std::string_view index_frame);
// DATA_LOSS unless the checksum of the footer is that of the frame.
Status CheckTszIndexChecksum(std::string_view frame, const TszFooter& footer);

// How large the blocks of a file with so many populated bytes are: more of them than the index can
// hold would be too many.
int64_t TszBlockBytesFor(int64_t populated_bytes);

// DATA_LOSS SNAPSHOT_CORRUPT: "object offset 12: what".
Status TszCorrupt(int64_t object_offset, std::string_view what);

}  // namespace torpor::snapshot
