#pragma once
// One object into one sparse file: index, ranges, blocks decoded on many threads.

#include <string>

#include "base/status.h"
#include "snapshot/format/manifest.h"
#include "snapshot/load/read_index.h"
#include "snapshot/load/staged_files.h"
#include "snapshot/transfer/resources.h"
#include "snapshot/transfer/transfer.h"

namespace torpor::snapshot {

struct FileLoadArgs {
  ManifestFile file;  // with its object
  RangeReader read;   // of the object
  StagedFiles* staged = nullptr;
  Resources* resources = nullptr;
  Transfer* transfer = nullptr;
};

// Blocks until the staged file holds every byte, checked. Holds memory of the budget meanwhile.
// Errors: DATA_LOSS with the offset in the object and what is wrong, RESOURCE_EXHAUSTED DISK_FULL,
// those of the reader and of transfer.Check().
Status LoadFile(const FileLoadArgs& args);

}  // namespace torpor::snapshot
