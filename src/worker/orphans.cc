#include "worker/orphans.h"

#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>

#include "base/log.h"
#include "os/netns/netns.h"
#include "worker/leaf_names.h"
#include "worker/network/gateway.h"
#include "worker/pool/warm_pool.h"

namespace torpor::worker {
namespace {

constexpr Duration kKillTimeout = std::chrono::seconds(10);

Status RemoveOrphan(os::CgroupTree* cgroups, const std::string& leaf, const std::string& uid,
                    Clock* clock) {
  RETURN_IF_ERROR(cgroups->KillAll(leaf, clock->Now() + kKillTimeout));
  if (!uid.empty()) RETURN_IF_ERROR(os::DeleteNetNamespace(ActorNetnsName(uid)));
  return cgroups->Remove(leaf);
}

}  // namespace

StatusOr<int> RemoveOrphans(os::CgroupTree* cgroups, const std::string& pool_directory,
                            Clock* clock) {
  ASSIGN_OR_RETURN(std::vector<std::string> leaves, cgroups->Leaves());
  int ended = 0;
  for (const std::string& leaf : leaves) {
    std::string uid = ActorOfLeaf(leaf);
    auto processes = cgroups->Processes(leaf);
    const size_t alive = processes.ok() ? processes->size() : 0;
    Status status = RemoveOrphan(cgroups, leaf, uid, clock);
    if (!status.ok()) {
      LogError("orphan not removed", {{"leaf", leaf}, {"error", status.ToString()}});
      continue;
    }
    std::string in_slot = ActorOfSlot(pool_directory, uid);
    LogWarning("orphan removed", {{"leaf", leaf},
                                  {"actor", in_slot.empty() ? uid : in_slot},
                                  {"processes", fmt::to_string(alive)}});
    if (alive > 0) ++ended;
  }
  return ended;
}

void RemoveEmptyGroups(const os::CgroupTree& cgroups) {
  for (const std::string& file : cgroups.ProcsFiles("any")) {
    // <mount>/<parent>/<worker>/<leaf>/cgroup.procs; a group in use refuses.
    std::filesystem::path worker = std::filesystem::path(file).parent_path().parent_path();
    if (rmdir(worker.c_str()) == 0) (void)rmdir(worker.parent_path().c_str());
  }
}

}  // namespace torpor::worker
