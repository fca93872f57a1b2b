#pragma once
// Settings of object storage: the same for every role that uses some.

#include <string>
#include <utility>
#include <vector>

#include "base/options.h"
#include "objstore/registry.h"

namespace torpor {

void DeclareRemoteStores(Options* o, objstore::RemoteOptions* remote);
// The same as flags, for `torpor up` to pass on; those that were not set are left out.
std::vector<std::pair<std::string, std::string>> RemoteStoreFlags(
    const objstore::RemoteOptions& remote);

// Environment variables that may hold credentials of object storage. `torpor up` gives them to
// roles that use it only.
bool IsStoreVariable(std::string_view entry);  // "NAME=value"

}  // namespace torpor
