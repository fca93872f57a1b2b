#pragma once
// A directory held by descriptor, and everything below it reached so that no name can lead outside.
//
// Every relative path is resolved with openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS |
// RESOLVE_NO_MAGICLINKS): "..", absolute paths and symbolic links at any component fail, they are
// never followed. Creation never replaces through a link: O_EXCL under a temporary name, rename.
//
// A DirFd owns its descriptor; it is movable. Methods are const and thread-safe as far as the file
// system is. Errors are ErrnoStatus of the failing call with the relative path in the message:
// INVALID_ARGUMENT for links and paths that leave the directory, NOT_FOUND, ALREADY_EXISTS,
// RESOURCE_EXHAUSTED DISK_FULL, FAILED_PRECONDITION for a file of the wrong type.

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/unique_fd.h"

namespace torpor::os {

// Who owns a new file or directory; kKeep leaves what the kernel gave.
struct Ownership {
  static constexpr uint32_t kKeep = UINT32_MAX;
  uid_t uid = kKeep;
  gid_t gid = kKeep;
};

struct DirEntry {
  std::string name;
  bool is_directory = false;  // false also for links and special files
  bool is_regular = false;
};

struct DiskSpace {
  int64_t free_bytes = 0;  // for unprivileged users; what a snapshot may take
  int64_t total_bytes = 0;
  int64_t free_inodes = 0;
};

class DirFd {
 public:
  DirFd() = default;
  explicit DirFd(UniqueFd fd) : fd_(std::move(fd)) {}

  // A directory named by trusted configuration; links in the path are followed.
  static StatusOr<DirFd> OpenPath(const std::string& path);

  int fd() const { return fd_.get(); }
  bool valid() const { return fd_.valid(); }
  // A path of this directory for programs and socket addresses that need one: valid while this
  // object lives, in this process and in children that inherit the descriptor.
  std::string ProcPath(std::string_view name = {}) const;

  StatusOr<DirFd> OpenDir(std::string_view path) const;
  // O_CLOEXEC, O_NOFOLLOW and O_NONBLOCK (so a FIFO cannot block) are added to `flags`.
  StatusOr<UniqueFd> Open(std::string_view path, int flags, mode_t mode = 0) const;
  // As Open, and fails with FAILED_PRECONDITION unless it is a regular file.
  StatusOr<UniqueFd> OpenRegular(std::string_view path, int flags, mode_t mode = 0) const;
  StatusOr<struct stat> Stat(std::string_view path) const;  // does not follow a link at the end
  bool Exists(std::string_view path) const;

  // A whole regular file; RESOURCE_EXHAUSTED when it is longer than `bytes_max`.
  StatusOr<std::string> ReadFile(std::string_view path, size_t bytes_max) const;
  // As ReadFile, but links are followed as if this directory were the root: for files of an image.
  StatusOr<std::string> ReadFileInRoot(std::string_view path, size_t bytes_max) const;
  // Class R: temporary file, rename, no fsync. Survives the end of a process, not a power cut.
  Status WriteFile(std::string_view path, std::string_view data, mode_t mode,
                   Ownership owner = {}) const;
  // Class D: temporary file, write, fsync, rename, fsync of the directory. Never on a wake, pause
  // or suspend path: the fsync waits for everybody's data.
  Status DurableWrite(std::string_view path, std::string_view data, mode_t mode,
                      Ownership owner = {}) const;

  // ALREADY_EXISTS when anything has the name, a dangling link too. The mode ignores the umask.
  Status MkdirExclusive(std::string_view path, mode_t mode, Ownership owner = {}) const;
  // An existing directory is taken as it is, mode and owner are set again.
  StatusOr<DirFd> MkdirOrOpen(std::string_view path, mode_t mode, Ownership owner = {}) const;

  Status Rename(std::string_view from, std::string_view to) const;
  // ALREADY_EXISTS instead of replacing.
  Status RenameNoReplace(std::string_view from, std::string_view to) const;
  Status Unlink(std::string_view path) const;  // a missing file is NOT_FOUND
  Status Rmdir(std::string_view path) const;

  // Sorted by name, without "." and "..".
  StatusOr<std::vector<DirEntry>> List() const;
  StatusOr<std::vector<DirEntry>> List(std::string_view path) const;

  StatusOr<DiskSpace> Space() const;

 private:
  StatusOr<UniqueFd> OpenAt2(std::string_view path, uint64_t flags, mode_t mode,
                             uint64_t resolve) const;
  // The parent directory of `path` and the last component.
  StatusOr<DirFd> OpenParent(std::string_view path, std::string* name) const;
  Status WriteVia(std::string_view path, std::string_view data, mode_t mode, Ownership owner,
                  bool sync) const;
  Status RenameWith(std::string_view from, std::string_view to, unsigned flags) const;

  UniqueFd fd_;
};

// Owner first, then mode, since chown clears set-id bits.
Status SetOwnerAndMode(int fd, Ownership owner, mode_t mode);
Status WriteAll(int fd, std::string_view data);
// From the current offset to the end of the file; RESOURCE_EXHAUSTED above `bytes_max`.
StatusOr<std::string> ReadAll(int fd, size_t bytes_max);
// An exclusive flock on `path`, made when missing; FAILED_PRECONDITION when another process has it.
// Held until the descriptor is closed.
StatusOr<UniqueFd> LockFile(const DirFd& dir, std::string_view path);
// Changes with every boot of the machine (a lower-case uuid).
StatusOr<std::string> BootId();

}  // namespace torpor::os
