#pragma once
// What an earlier process of this worker left behind: sandboxes, their cgroup leaves and networks.

#include <string>

#include "base/status.h"
#include "base/time.h"
#include "os/cgroup/cgroup_tree.h"

namespace torpor::worker {

// Kills and removes all of it. Every actor's leaf is made before its network and removed after it,
// so the leaves name everything there is; another worker's actors are never touched. Called before
// anything is started, by the only process of this worker id. Also empty groups
// beside a leaf that a cut-off capture left. Returns the number of leaves that held processes; each
// is logged, and so are errors.
// `pool_directory` tells which actor lived in a sandbox of the warm pool, for the log.
StatusOr<int> RemoveOrphans(os::CgroupTree* cgroups, const std::string& pool_directory,
                            Clock* clock);
// At the end of a process: removes the worker's own group and the one above it, if they are empty.
// The next start makes them again.
void RemoveEmptyGroups(const os::CgroupTree& cgroups);

}  // namespace torpor::worker
