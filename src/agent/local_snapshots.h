#pragma once
// LOCAL generations: checked, committed by rename, verified before use, listed, pinned, removed.
//
// A generation is actors/<uid>/local-checkpoint/<name>/ with the captured files (0440) and
// manifest.json, later also sums.json. The rename from checkpoint-state is the commit. Thread-safe
// for different actors; pins are thread-safe for all.

#include <functional>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "agent/node_dirs.h"
#include "base/status.h"
#include "base/sync.h"
#include "snapshot/format/manifest.h"
#include "torpor/v1/agent.pb.h"
#include "torpor/v1/node.pb.h"

namespace torpor::agent {

class LocalSnapshots {
 public:
  LocalSnapshots(const NodeDirs* dirs, std::string boot_id)
      : dirs_(dirs), boot_id_(std::move(boot_id)) {}

  // CHECK of a capture: checkpoint-state holds exactly `reported`, all regular files; returns them
  // with sizes measured by us. INTERNAL INVALID_CHECKPOINT_RESULT says what differs.
  StatusOr<std::vector<torpor::v1::SnapshotFile>> CheckCapture(
      const std::string& uid,
      const google::protobuf::RepeatedPtrField<torpor::v1::SnapshotFile>& reported) const;
  // COMMIT: modes, manifest written last, rename. Repeating it after a crash at any point is right;
  // ALREADY_EXISTS when another generation has the name.
  Status Commit(const std::string& uid, const std::string& name, snapshot::Manifest manifest) const;
  // The manifest of a capture that was complete but not renamed when the agent died.
  StatusOr<snapshot::Manifest> ReadPrepared(const std::string& uid) const;

  // NOT_FOUND when there is none of that name.
  StatusOr<snapshot::Manifest> Read(const std::string& uid, const std::string& name) const;
  // VERIFY of a start: identity and generation as asked, every file regular and of its size. One of
  // an earlier boot must also have sums.json and every byte of it (its pages may never have reached
  // the disk); that is read once. DATA_LOSS LOCAL_SNAPSHOT_GONE when absent, unreadable or not what
  // it was before the reboot, DATA_LOSS SNAPSHOT_CORRUPT when it differs from its manifest.
  StatusOr<snapshot::Manifest> Verify(const torpor::v1::ActorIdentity& actor,
                                      const std::string& name, int64_t generation) EXCLUDES(mu_);

  // Usable ones, oldest generation first. Left out is what cannot be read, and what is of an
  // earlier boot and has no sums or other sizes; its bytes are read by Verify only.
  StatusOr<std::vector<torpor::v1::LocalCopy>> List(const std::string& uid) const EXCLUDES(mu_);

  // Of a generation of this boot; a missing one is NOT_FOUND.
  StatusOr<torpor::v1::LocalSums> Sum(const std::string& uid, const std::string& name,
                                      const std::function<bool()>& stop) const;
  Status WriteSums(const std::string& uid, const std::string& name,
                   const torpor::v1::LocalSums& sums) const;
  // Generations of this boot without sums.json.
  std::vector<std::string> WithoutSums(const std::string& uid) const;
  // Two-phase; a missing one is OK. FAILED_PRECONDITION when it is pinned.
  Status Delete(const std::string& uid, const std::string& name, WallTime now) EXCLUDES(mu_);

  // While pinned it is not deleted.
  void Pin(const std::string& uid, const std::string& name) EXCLUDES(mu_);
  void Unpin(const std::string& uid, const std::string& name) EXCLUDES(mu_);
  // Waits until nobody pins it; false when `deadline` passed.
  bool WaitUnpinned(const std::string& uid, const std::string& name, MonotonicTime deadline)
      EXCLUDES(mu_);
  bool IsPinned(const std::string& uid, const std::string& name) const EXCLUDES(mu_);

 private:
  using Key = std::pair<std::string, std::string>;  // actor uid, name
  Status CheckAfterReboot(const Key& key, const snapshot::Manifest& manifest) EXCLUDES(mu_);

  const NodeDirs* const dirs_;
  const std::string boot_id_;
  mutable Mutex mu_;
  CondVar unpinned_;
  std::map<Key, int> pins_ GUARDED_BY(mu_);
  // Of an earlier boot: whether all bytes were found right.
  std::map<Key, bool> survived_ GUARDED_BY(mu_);
};

// Keeps a generation from being deleted while it is read.
class SnapshotPin {
 public:
  SnapshotPin(LocalSnapshots* snapshots, std::string uid, std::string name)
      : snapshots_(snapshots), uid_(std::move(uid)), name_(std::move(name)) {
    snapshots_->Pin(uid_, name_);
  }
  ~SnapshotPin() { snapshots_->Unpin(uid_, name_); }
  SnapshotPin(const SnapshotPin&) = delete;
  SnapshotPin& operator=(const SnapshotPin&) = delete;

 private:
  LocalSnapshots* const snapshots_;
  const std::string uid_;
  const std::string name_;
};

// Older LOCAL generations that may go once `acknowledged` is known to the control plane: all below
// it. Pure.
std::vector<std::string> ChoosePrune(const std::vector<torpor::v1::LocalCopy>& copies,
                                     int64_t acknowledged);

}  // namespace torpor::agent
