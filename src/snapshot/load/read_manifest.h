#pragma once
// The manifest of a committed snapshot.

#include <string>

#include "base/status.h"
#include "objstore/object_store.h"
#include "snapshot/format/manifest.h"

namespace torpor::snapshot {

struct CommittedManifest {
  Manifest manifest;
  std::string text;    // as stored
  std::string sha256;  // of the text
};

// Reads, checks the hash when `sha256` is not empty, parses, and requires an object for every file.
// NOT_FOUND when nothing is committed there; DATA_LOSS SNAPSHOT_CORRUPT.
StatusOr<CommittedManifest> ReadManifest(objstore::ObjectStore& store, const std::string& prefix,
                                         const std::string& sha256);

}  // namespace torpor::snapshot
