// The decoded bytes of an index: what is accepted keeps every bound and can be written again. The
// first bytes say what it must agree with.

#include "base/log.h"
#include "snapshot/format/tsz.h"
#include "snapshot/format/tsz_wire.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torpor::snapshot;
  std::string_view input(reinterpret_cast<const char*>(data), size);
  if (input.size() < 17) return 0;
  TszExpected expected;
  expected.logical_bytes = static_cast<int64_t>(ReadLittleEndian<uint64_t>(input));
  expected.blocks_end = static_cast<int64_t>(ReadLittleEndian<uint64_t>(input.substr(8)));
  expected.bases = input[16] & 15;
  if (expected.blocks_end < 0) return 0;  // never asked: a footer names no such place
  auto index = ParseTszIndex(input.substr(17), expected);
  if (!index.ok()) {
    CHECK(torpor::ReasonOf(index.status()) == "SNAPSHOT_CORRUPT");
    return 0;
  }
  TszIndexWriter writer;
  int64_t stream = 0;
  int64_t end = 0;
  for (const TszBlock& block : index->blocks) {
    CHECK(block.stream_offset == stream);
    stream += block.raw_bytes;
    writer.AddBlock(block.compressed_bytes, block.raw_bytes, block.hash);
  }
  CHECK(stream == index->populated_bytes && stream <= index->logical_bytes);
  for (const TszExtent& extent : index->extents) {
    CHECK(extent.offset >= end && extent.length > 0);
    end = extent.offset + extent.length;
    CHECK(end <= index->logical_bytes);
    CHECK(extent.source != 0 || extent.from + extent.length <= stream);
    writer.AddExtent(extent.offset, extent.length, extent.source, extent.from);
  }
  auto again = ParseTszIndex(writer.Serialize(index->logical_bytes, index->block_bytes), expected);
  CHECK(again.ok());
  CHECK(*again == *index);
  return 0;
}
