#pragma once
// Makes the stores behind s3:// and gs:// addresses from the settings.

#include <string>
#include <vector>

#include "base/status.h"
#include "objstore/credentials/credentials.h"
#include "objstore/registry.h"
#include "objstore/xml/dialect.h"

namespace torpor::objstore {

// Opens addresses at or below one of `allowed`, all of the dialect's scheme; others are
// PERMISSION_DENIED STORE_DENIED. No request is sent before one is asked for. INVALID_ARGUMENT
// names a bad setting.
StatusOr<StoreRegistry::Opener> RemoteOpener(const Dialect& dialect, const RemoteOptions& options,
                                             std::vector<Uri> allowed,
                                             const Environment& environment);

// Where a bucket's requests go: the pure half of it.
struct BucketPlace {
  std::string endpoint;
  std::string region;
  bool path_style = false;
};
StatusOr<BucketPlace> PlaceOfBucket(const Dialect& dialect, const RemoteOptions& options,
                                    const std::string& bucket, const Environment& environment);

}  // namespace torpor::objstore
