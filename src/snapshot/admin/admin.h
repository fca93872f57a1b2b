#pragma once
// What the apiserver does with whole snapshots: copy one for a tag, delete one.
//
// Blocking and idempotent: after an error or a crash the same call goes on. Thread-safe as far as
// the stores are. Both take addresses of single snapshots only (layout.h) and refuse anything wider
// with INVALID_ARGUMENT before they ask the store anything. Other errors are those of the store:
// UNAVAILABLE and RESOURCE_EXHAUSTED may be repeated.

#include <cstdint>
#include <string>

#include "base/status.h"
#include "objstore/registry.h"

namespace torpor::snapshot {

struct CopyResult {
  std::string manifest_sha256;  // the same as of the source: the manifest is copied byte by byte
  int64_t stored_bytes = 0;
};

// Data objects first, the manifest last, which commits the copy; sizes are checked against the
// manifest, index and blocks too when the bytes pass through us (two stores). A copy that is
// committed already is success; another snapshot there is FAILED_PRECONDITION WRONG_STATE.
// NOT_FOUND: the source is not committed; DATA_LOSS SNAPSHOT_CORRUPT: it is damaged, or is not the
// one with `manifest_sha256` (empty = any).
StatusOr<CopyResult> CopySnapshot(const objstore::StoreRegistry& stores,
                                  const std::string& from_uri, const std::string& to_uri,
                                  const std::string& manifest_sha256 = {});

// The manifest first, so that a half-deleted snapshot is none, then every object below. Nothing
// there is success.
Status DeleteSnapshot(const objstore::StoreRegistry& stores, const std::string& uri);

}  // namespace torpor::snapshot
