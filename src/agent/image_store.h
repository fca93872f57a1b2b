#pragma once
// Container images unpacked once per digest (node.md 8).
//
// images/blobs is an OCI layout that the mover fills; images/rootfs/<hex>/ holds `rootfs`, the tree
// that every actor of this image shares read-only, `config.json`, the image's configuration, and
// `complete.json`, which is written last: without it the directory is debris. A tree of an earlier
// boot is used only if it was flushed then (Flush). Ensure is single flight per digest.
// Thread-safe.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "agent/eviction.h"
#include "agent/mover_client.h"
#include "agent/node_dirs.h"
#include "agent/outcome.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "base/uuid.h"
#include "os/process/confine.h"

namespace torpor::agent {

struct Image {
  std::string digest;       // as referenced, sha256:<hex>
  std::string rootfs_path;  // absolute
  std::string config;       // the config blob, JSON
  std::string passwd;       // /etc/passwd and /etc/group of the tree, empty when not there
  std::string group;
};

// Unpacks the image that `layout` (a path) has under `tag` into `rootfs`, a path that does not
// exist.
using Unpacker = std::function<Status(const std::string& layout, const std::string& tag,
                                      const std::string& rootfs, MonotonicTime deadline)>;
// `umoci raw unpack`. It takes apart what strangers packed, so it is confined: it writes only below
// the directory that is to hold `rootfs`, and reads only the layout and the system's programs. With
// less than os::kLandlockMin it runs unconfined, and a warning says so once.
Unpacker UmociUnpacker(int landlock_version = os::LandlockVersion());

class ImageStore {
 public:
  // The pointers outlive the store.
  ImageStore(const NodeDirs* dirs, std::string boot_id, MoverClient* mover, IdSource* ids,
             Clock* clock, Unpacker unpacker, Duration unreachable_max = kUnreachableMax)
      : dirs_(dirs),
        boot_id_(std::move(boot_id)),
        mover_(mover),
        ids_(ids),
        clock_(clock),
        unpacker_(std::move(unpacker)),
        unreachable_max_(unreachable_max) {}

  // Once, before Ensure: removes debris and what an earlier boot did not flush.
  Status Recover() EXCLUDES(mu_);

  // While the result is held the image is not evicted. Damaged blobs are fetched once more.
  // INTERNAL INVALID_CONTAINER_CONFIG for a reference without digest or a broken image; what the
  // mover says when the image cannot be had.
  StatusOr<std::shared_ptr<const Image>> Ensure(const std::string& reference,
                                                const torpor::v1::ActorIdentity& actor,
                                                MonotonicTime deadline) EXCLUDES(mu_);

  // Writes everything of the file system to the disk and marks the trees that were complete
  // before. When that fails they stay unmarked for good, and the next boot drops them.
  Status Flush() EXCLUDES(mu_);
  bool HasUnflushed() const EXCLUDES(mu_);

  // Removes blobs (first, nothing runs from them) and trees until they fit `budget`. Digests in
  // `pinned` and images that Ensure's callers hold stay. Returns the bytes freed.
  StatusOr<int64_t> Evict(const std::set<std::string>& pinned, const CacheBudget& budget)
      EXCLUDES(mu_);
  // Of trees and blobs, as of the last Evict.
  int64_t bytes() const EXCLUDES(mu_);

 private:
  struct Marker {
    std::string boot_id;
    bool synced = false;
    int64_t bytes = 0;
  };
  StatusOr<Marker> ReadMarker(const std::string& hex) const;
  Status WriteMarker(const std::string& digest, const Marker& marker) const;
  StatusOr<std::shared_ptr<const Image>> Load(const std::string& digest) const;
  StatusOr<std::shared_ptr<const Image>> Fetch(const std::string& reference,
                                               const std::string& digest,
                                               const torpor::v1::ActorIdentity& actor,
                                               MonotonicTime deadline) EXCLUDES(mu_);
  Status Pull(const std::string& reference, const torpor::v1::ActorIdentity& actor,
              MonotonicTime deadline) const;
  Status Unpack(const std::string& digest, MonotonicTime deadline) EXCLUDES(mu_);
  // Removes blobs of the image that are not what their digest says; the number of missing and
  // removed ones.
  int DropDamagedBlobs(const std::string& digest) const;
  StatusOr<std::vector<CacheEntry>> Entries(const std::set<std::string>& pinned) const
      EXCLUDES(mu_);
  Status EvictTree(const std::string& digest) EXCLUDES(mu_);

  const NodeDirs* const dirs_;
  const std::string boot_id_;
  MoverClient* const mover_;
  IdSource* const ids_;
  Clock* const clock_;
  const Unpacker unpacker_;
  const Duration unreachable_max_;
  mutable Mutex mu_;
  CondVar done_;
  // A null image: somebody is at work.
  std::map<std::string, std::shared_ptr<const Image>> images_ GUARDED_BY(mu_);
  std::map<std::string, WallTime> used_ GUARDED_BY(mu_);  // when the tree's clock was set last
  std::set<std::string> unflushed_ GUARDED_BY(mu_);       // digests
  int64_t bytes_ GUARDED_BY(mu_) = 0;
};

// The digest of NAME@sha256:<hex>.
StatusOr<std::string> DigestOfReference(const std::string& reference);

// From index.json of an OCI layout: the manifest's digest for `tag`, which is a digest too. Pure.
StatusOr<std::string> FindManifest(const std::string& index_json, const std::string& tag);
// From a manifest: the digest of its config blob. Pure.
StatusOr<std::string> FindConfig(const std::string& manifest_json);
// From a manifest: the digests of its layers. Pure.
std::vector<std::string> FindLayers(const std::string& manifest_json);

}  // namespace torpor::agent
