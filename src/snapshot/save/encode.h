#pragma once
// A sparse file as a .tsz object: scan, read, drop zero pages, compress blocks on the pool, hand
// them on in order, then index and footer.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "snapshot/save/object_writer.h"
#include "snapshot/transfer/resources.h"
#include "snapshot/transfer/transfer.h"

namespace torpor::snapshot {

struct EncodeArgs {
  int fd = -1;  // a regular file of logical_bytes
  int64_t logical_bytes = 0;
  UploadBound bound;  // that the plan was made of
  UploadPlan plan;
  Resources* resources = nullptr;
  ByteBudget::Hold* hold = nullptr;  // at least the minimum of the plan
  Transfer* transfer = nullptr;
};

struct EncodedFile {
  int64_t populated_bytes = 0;
  std::string index_sha256;
};

// Appends the whole object to `writer` and does not finish it. Blocks until done; memory as `hold`
// says. DATA_LOSS SNAPSHOT_CORRUPT when the file is shorter than it should be, INTERNAL when it has
// more data than the bound (it grew after the scan), those of the writer and of transfer.Check().
StatusOr<EncodedFile> EncodeFile(const EncodeArgs& args, ObjectWriter* writer);

}  // namespace torpor::snapshot
