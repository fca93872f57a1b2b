#pragma once
// What the apiserver itself does in object storage: copy a snapshot for a tag, delete a snapshot.
// Uploads and downloads belong to the movers.
//
// Asynchronous: answers once, from any thread. Both calls are idempotent. Thread-safe. Errors are
// those of objstore/object_store.h: UNAVAILABLE and RESOURCE_EXHAUSTED may be retried.

#include <string>

#include "base/time.h"
#include "control/done.h"
#include "torpor/v1/common.pb.h"

namespace torpor::control {

class SnapshotAdmin {
 public:
  virtual ~SnapshotAdmin() = default;
  // Copies every object of the snapshot `from` to `to_uri`, the manifest last, which commits the
  // copy. NOT_FOUND when the source has no manifest, DATA_LOSS when it is not the one of `from`.
  virtual void CopySnapshot(const torpor::v1::SnapshotRef& from, const std::string& to_uri,
                            DoneStatus done) = 0;
  // Removes the manifest first, then every object below `uri`. Nothing there is success.
  virtual void DeleteSnapshot(const std::string& uri, DoneStatus done) = 0;
};

}  // namespace torpor::control
