#pragma once
// Objects as files below one directory (the default of `torpor up`): file:///<root>/<key>.
//
// A write goes to a new file in <root>/.tmp, is flushed, renamed and its directory flushed, so an
// object is whole or absent after any crash. Every path is resolved beneath the root's descriptor
// without following a link, so no key leaves the root; PERMISSION_DENIED STORE_DENIED when one
// tries. Two processes may share a root (mover and apiserver): files are 0640, directories 02770,
// so a root that is setgid to a group of both is enough. Thread-safe. A key cannot be both an
// object and the directory of another.

#include <memory>
#include <string>

#include "base/status.h"
#include "base/sync.h"
#include "objstore/object_store.h"
#include "os/fs/dir_fd.h"

namespace torpor::objstore {

class FileStore : public ObjectStore {
 public:
  // `root` is absolute and exists.
  static StatusOr<std::unique_ptr<FileStore>> Open(const std::string& root);

  StatusOr<ObjectInfo> Head(const std::string& key) override;
  StatusOr<ObjectInfo> Get(const std::string& key, ByteRange range, const Sink& sink) override;
  Status Put(const std::string& key, std::string_view bytes,
             const PutOptions& options = {}) override;
  StatusOr<std::unique_ptr<MultipartUpload>> Begin(const std::string& key,
                                                   int64_t part_bytes) override;
  StatusOr<ListPage> List(const std::string& prefix, const std::string& token) override;
  Status Delete(const std::string& key) override;
  Status Copy(const std::string& from, const std::string& to) override;
  // Below any prefix: a file in .tmp does not say where it was meant to go.
  Status AbortUploads(const std::string& prefix, WallTime before) override;

 private:
  class TempFile;
  class Upload;

  FileStore(os::DirFd root, os::DirFd temp) : root_(std::move(root)), temp_(std::move(temp)) {}
  StatusOr<UniqueFd> OpenObject(const std::string& key, int64_t* bytes) const;
  // Makes what is missing; `above` gets the root and every directory down to the parent's own.
  StatusOr<os::DirFd> MakeParent(const std::string& key, std::vector<os::DirFd>* above) const
      REQUIRES(tree_mu_);
  Status Commit(TempFile* file, const std::string& key, const PutOptions& options) const
      EXCLUDES(tree_mu_);
  Status ListDirectory(const std::string& directory, const std::string& token,
                       ListPage* page) const;

  const os::DirFd root_;
  const os::DirFd temp_;
  mutable Mutex tree_mu_;  // directories appear or disappear; never held during a flush
};

}  // namespace torpor::objstore
