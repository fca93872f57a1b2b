#pragma once
// The end of a .tsz object and its index, checked from the outside in.
//
// Blocks; thread-safe as far as the reader is. Errors: DATA_LOSS SNAPSHOT_CORRUPT with the offset
// and what is wrong, those of the reader.

#include <functional>
#include <string>

#include "base/status.h"
#include "objstore/object_store.h"
#include "snapshot/format/manifest.h"
#include "snapshot/format/tsz.h"

namespace torpor::snapshot {

// Reads exactly `length` bytes from `offset` of one object to `out`, which has room for them.
using RangeReader = std::function<Status(int64_t offset, int64_t length, char* out)>;

// Of an object as the manifest describes it. A missing object is DATA_LOSS
// FAILED_GET_EXTERNAL_OBJECT, one of another size SNAPSHOT_CORRUPT. `store` outlives the reader;
// `check` is asked for every piece and may be empty.
RangeReader ReaderOf(objstore::ObjectStore* store, const std::string& key, int64_t object_bytes,
                     std::function<Status()> check);

struct ObjectTail {
  int64_t offset = 0;  // of its first byte in the object
  std::string bytes;
  TszFooter footer;
  // How many bytes of the index lie before it.
  int64_t index_missing() const { return std::max<int64_t>(0, offset - footer.index_offset); }
};
StatusOr<ObjectTail> ReadTail(const RangeReader& read, int64_t object_bytes);
// The index frame, read as far as it is not in the tail. Its checksum and its hash are right (an
// empty `index_sha256` is not known, and not compared).
StatusOr<std::string> ReadIndexFrame(const RangeReader& read, const ObjectTail& tail,
                                     const std::string& index_sha256);

}  // namespace torpor::snapshot
