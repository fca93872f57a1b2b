#pragma once
// Brings a committed snapshot into a directory: verified files, all of them or none.
//
// Blocks until done; files go in parallel, each with memory of the shared budget. Restored files
// are not flushed: they are scratch of one start, and a flush would wait for everybody's data.
//
// Errors: DATA_LOSS SNAPSHOT_CORRUPT (file, offset, reason); DATA_LOSS FAILED_GET_EXTERNAL_OBJECT
// when the manifest or an object is missing; FAILED_PRECONDITION FIDELITY_NOT_CAPTURED, or
// WRONG_STATE when a name is taken in the target; RESOURCE_EXHAUSTED DISK_FULL; CANCELLED,
// DEADLINE_EXCEEDED; those of the store.

#include <functional>
#include <string>

#include "base/status.h"
#include "objstore/object_store.h"
#include "os/fs/dir_fd.h"
#include "snapshot/format/manifest.h"
#include "snapshot/transfer/resources.h"
#include "snapshot/transfer/transfer.h"

namespace torpor::snapshot {

struct LoadArgs {
  const os::DirFd* target = nullptr;
  objstore::ObjectStore* store = nullptr;
  std::string prefix;           // key of the snapshot's directory
  std::string manifest_sha256;  // as the record says; empty = not known
  torpor::v1::Fidelity fidelity =
      torpor::v1::FIDELITY_UNSPECIFIED;  // unset = all that was captured
  // Whether this is the snapshot that is wanted; asked before anything is written. May be empty.
  std::function<Status(const Manifest&)> accept;
  Resources* resources = nullptr;
  Transfer* transfer = nullptr;
};

StatusOr<torpor::v1::FetchResult> LoadSnapshot(const LoadArgs& args);

}  // namespace torpor::snapshot
