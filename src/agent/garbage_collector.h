#pragma once
// Removes actor trees, local generations and worker sockets that nobody needs (node.md 7), and says
// how the disk is. garbage.h judges; here is what it judges by, and what follows.
//
// If the control plane's list, the journal, the mount table or a worker's list cannot be had, a
// pass removes nothing. Pass comes from one thread; Disk from any.

#include <functional>
#include <string>
#include <vector>

#include "agent/core.h"
#include "agent/garbage.h"
#include "agent/registry_client.h"
#include "base/status.h"
#include "base/sync.h"
#include "os/fs/usage.h"
#include "torpor/v1/extensions.pb.h"

namespace torpor::agent {

// Mount points at or below an absolute path.
using MountList = std::function<StatusOr<std::vector<std::string>>(const std::string& top)>;

class GarbageCollector {
 public:
  // The pointers outlive the collector.
  GarbageCollector(const Core* core, RegistryClient* registry, GarbageRules rules, MountList mounts)
      : core_(*core),
        registry_(registry),
        rules_(rules),
        mounts_(std::move(mounts)),
        verdicts_(rules.passes) {}

  // One pass. An error says why it removed nothing.
  Status Pass();

  // Measured by the last MeasureDisk; space and pressure are of now.
  torpor::v1::DiskUsage Disk() const EXCLUDES(mu_);
  void MeasureDisk() EXCLUDES(mu_);

 private:
  Status Observe(GarbageFacts* facts) const;
  Status ObserveTrees(GarbageFacts* facts) const;
  void ObserveSnapshots(const std::string& uid, GarbageFacts::Tree* tree) const;
  Status ObserveWorkers(GarbageFacts* facts) const;
  Status ObserveSockets(GarbageFacts* facts) const;
  bool IsSilent(const std::string& socket_name) const;
  void Remove(const Garbage& garbage);
  Status RemoveActor(const std::string& uid);

  const Core& core_;
  RegistryClient* const registry_;
  const GarbageRules rules_;
  const MountList mounts_;
  Verdicts verdicts_;
  bool warned_ = false;  // about passes that cannot judge; once until one can

  mutable Mutex mu_;
  int64_t snapshot_bytes_ GUARDED_BY(mu_) = 0;
  int64_t image_bytes_ GUARDED_BY(mu_) = 0;
  int64_t largest_capture_ GUARDED_BY(mu_) = 0;
};

}  // namespace torpor::agent
