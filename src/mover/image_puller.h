#pragma once
// Brings images into <node-dir>/images/blobs, one OCI layout in which each image has the digest of
// its reference ("sha256:<hex>") as reference name.
//
// A digest that lies in an OCI layout below `layout_dir` (each child directory is one) is copied
// from there; anything else comes from its registry through skopeo, streamed to disk. Layers are
// shared by digest. Thread-safe; pulls run in parallel. images/blobs is made by the node agent and
// belongs to the mover's user.
//
// Errors: INVALID_ARGUMENT FIELD_INVALID for a bad reference; PERMISSION_DENIED NOT_ALLOWED for a
// registry that is not allowed or refuses us; NOT_FOUND INVALID_CONTAINER_CONFIG when the registry
// has no such image; UNAVAILABLE IMAGE_REGISTRY_UNAVAILABLE (try again); RESOURCE_EXHAUSTED
// DISK_FULL; CANCELLED, DEADLINE_EXCEEDED.

#include <string>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "mover/image_reference.h"
#include "os/fs/dir_fd.h"
#include "snapshot/transfer/transfer.h"

namespace torpor::mover {

struct ImagePullerOptions {
  std::string node_dir;    // absolute
  std::string layout_dir;  // absolute; empty or missing = none
  RegistryRules registries;
  std::string auth_file;  // of skopeo; empty = anonymous
  std::string skopeo = "skopeo";
  Resolver resolver = ResolveHost;
};

// What the message of a failed skopeo means. Pure.
Status SkopeoStatus(const std::string& image, const std::string& message);

class ImagePuller {
 public:
  explicit ImagePuller(ImagePullerOptions options) : options_(std::move(options)) {}

  // Empty architecture = this machine's.
  Status Pull(const std::string& reference, const std::string& architecture,
              snapshot::Transfer* transfer) EXCLUDES(mu_);

 private:
  StatusOr<os::DirFd> OpenBlobs() EXCLUDES(mu_);
  bool FindInLayouts(const std::string& digest, os::DirFd* layout) const;
  Status PullFromRegistry(const ImageReference& image, const std::string& architecture,
                          const os::DirFd& blobs, snapshot::Transfer* transfer) EXCLUDES(mu_);
  Status RunSkopeo(const ImageReference& image, const std::string& architecture,
                   const os::DirFd& scratch, const std::string& scratch_path,
                   snapshot::Transfer* transfer) const;

  const ImagePullerOptions options_;
  Mutex mu_;  // index.json is read, changed and written
  bool swept_ GUARDED_BY(mu_) = false;
};

}  // namespace torpor::mover
