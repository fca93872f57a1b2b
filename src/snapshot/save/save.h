#pragma once
// Puts the files of a capture into object storage: data objects, then the manifest, which commits.
//
// Blocks until done; files go in parallel, each with memory of the shared budget. Nothing that was
// acknowledged is ever overwritten: a manifest that is there already is compared, never replaced.
//
// Errors: DATA_LOSS SNAPSHOT_CORRUPT when a file differs from what the manifest says,
// LOCAL_SNAPSHOT_GONE when it is missing; FAILED_PRECONDITION SNAPSHOT_IDENTITY when another
// snapshot lies there; CANCELLED, DEADLINE_EXCEEDED; those of the store. After an error the objects
// of this call are removed again, as far as the store answers.

#include <string>

#include "base/status.h"
#include "objstore/object_store.h"
#include "os/fs/dir_fd.h"
#include "snapshot/format/manifest.h"
#include "snapshot/transfer/resources.h"
#include "snapshot/transfer/transfer.h"

namespace torpor::snapshot {

struct SaveArgs {
  const os::DirFd* source = nullptr;  // holds the files
  Manifest manifest;  // its files name what to save; populated bytes and objects are set here
  objstore::ObjectStore* store = nullptr;
  std::string prefix;  // key of the snapshot's directory
  Resources* resources = nullptr;
  Transfer* transfer = nullptr;
};

StatusOr<torpor::v1::UploadResult> SaveSnapshot(SaveArgs args);

// What a committed manifest says about sizes, for the result of an upload.
torpor::v1::UploadResult ResultOf(const Manifest& manifest, std::string_view manifest_text);

}  // namespace torpor::snapshot
