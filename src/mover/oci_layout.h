#pragma once
// OCI image layouts on disk: find an image by digest, copy it between layouts, name it.
//
// Functions are thread-safe for different layouts; NameImage on one layout needs a lock of the
// caller. Every blob is bounded and its sha256 checked before it appears under its name. Errors:
// NOT_FOUND, DATA_LOSS SNAPSHOT_CORRUPT for a layout that is damaged, INTERNAL
// INVALID_CONTAINER_CONFIG for an image that we cannot use.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "os/fs/dir_fd.h"
#include "snapshot/transfer/transfer.h"

namespace torpor::mover {

inline constexpr size_t kOciJsonBytesMax = 4 << 20;  // of a manifest or an index

struct Descriptor {
  std::string media_type;
  std::string digest;
  int64_t bytes = 0;
};

// What an image consists of besides its manifest: the config first, then the layers.
struct ImageParts {
  Descriptor manifest;
  std::vector<Descriptor> blobs;
};

// "blobs/sha256/<hex>"
std::string BlobPath(const std::string& digest);

// The parts of the image `digest`, a manifest or an index of manifests, of which the one for
// linux/`architecture` is taken.
StatusOr<ImageParts> ReadImage(const os::DirFd& layout, const std::string& digest,
                               const std::string& architecture);

// True when the layout has `digest` among its blobs.
bool HasBlob(const os::DirFd& layout, const std::string& digest);
// True when every part is there with its size.
bool IsComplete(const os::DirFd& layout, const ImageParts& image);

// Copies what is missing, checked on the way.
Status CopyImage(const os::DirFd& from, const ImageParts& image, const os::DirFd& to,
                 snapshot::Transfer* transfer);

// Makes a layout of an empty directory; an existing one stays.
Status InitLayout(const os::DirFd& layout);
// Enters the image in index.json under the reference name `name`, in place of an older one.
Status NameImage(const os::DirFd& layout, const Descriptor& manifest, const std::string& name);
// The manifest that has the name in index.json; an empty name takes the only one. NOT_FOUND.
StatusOr<Descriptor> FindNamed(const os::DirFd& layout, const std::string& name);

}  // namespace torpor::mover
