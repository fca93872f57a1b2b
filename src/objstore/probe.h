#pragma once
// Whether a storage can be used: asked by a person or at a start, not on the way of a snapshot.

#include <string_view>

#include "base/status.h"
#include "objstore/registry.h"

namespace torpor::objstore {

// Lists below the address, then writes, reads and deletes a small object there. The error of the
// first step that failed, with what to do; UNAVAILABLE also when it reads back differently.
Status ProbeStorage(const StoreRegistry& stores, std::string_view uri);

}  // namespace torpor::objstore
