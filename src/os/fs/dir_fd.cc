#include "os/fs/dir_fd.h"

#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/file.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <memory>

#include <fmt/format.h>

namespace torpor::os {
namespace {

constexpr uint64_t kBeneath = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;

Status WrongType(std::string_view path, std::string_view wanted) {
  return Error(Code::kFailedPrecondition, "INTERNAL", fmt::format("{} is not {}", path, wanted));
}

// The temporary name of a file being written; unique in this process, and O_EXCL guards the rest.
std::string TempName(std::string_view name) {
  static std::atomic<uint64_t> counter{0};
  return fmt::format(".tmp-{}-{}-{}", name.substr(0, 64), getpid(), counter.fetch_add(1));
}

}  // namespace

StatusOr<DirFd> DirFd::OpenPath(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, fmt::format("open {}", path));
  return DirFd(std::move(fd));
}

std::string DirFd::ProcPath(std::string_view name) const {
  std::string path = fmt::format("/proc/self/fd/{}", fd_.get());
  if (!name.empty()) path += fmt::format("/{}", name);
  return path;
}

StatusOr<UniqueFd> DirFd::OpenAt2(std::string_view path, uint64_t flags, mode_t mode,
                                  uint64_t resolve) const {
  // A NUL would cut the path that the kernel sees.
  if (path.empty() || path.find('\0') != std::string_view::npos) {
    return ErrnoStatus(EINVAL, "a path that is empty or holds a NUL");
  }
  std::string text(path);
  struct open_how how = {};
  how.flags = flags | O_CLOEXEC;
  how.mode = (flags & O_CREAT) != 0 ? mode : 0;
  how.resolve = resolve;
  for (;;) {
    long fd = syscall(SYS_openat2, fd_.get(), text.c_str(), &how, sizeof how);
    if (fd >= 0) return UniqueFd(static_cast<int>(fd));
    // EAGAIN: the tree was renamed while the kernel proved that the path stays beneath.
    if (errno != EINTR && errno != EAGAIN) return ErrnoStatus(errno, fmt::format("open {}", path));
  }
}

StatusOr<DirFd> DirFd::OpenDir(std::string_view path) const {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenAt2(path, O_RDONLY | O_DIRECTORY, 0, kBeneath));
  return DirFd(std::move(fd));
}

StatusOr<UniqueFd> DirFd::Open(std::string_view path, int flags, mode_t mode) const {
  return OpenAt2(path, static_cast<uint64_t>(flags | O_NOFOLLOW | O_NONBLOCK), mode, kBeneath);
}

StatusOr<UniqueFd> DirFd::OpenRegular(std::string_view path, int flags, mode_t mode) const {
  ASSIGN_OR_RETURN(UniqueFd fd, Open(path, flags, mode));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, fmt::format("stat {}", path));
  if (!S_ISREG(st.st_mode)) return WrongType(path, "a regular file");
  return fd;
}

StatusOr<struct stat> DirFd::Stat(std::string_view path) const {
  std::string name;
  ASSIGN_OR_RETURN(DirFd parent, OpenParent(path, &name));
  struct stat st;
  if (fstatat(parent.fd(), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
    return ErrnoStatus(errno, fmt::format("stat {}", path));
  }
  return st;
}

bool DirFd::Exists(std::string_view path) const { return Stat(path).ok(); }

StatusOr<std::string> DirFd::ReadFile(std::string_view path, size_t bytes_max) const {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenRegular(path, O_RDONLY));
  auto data = ReadAll(fd.get(), bytes_max);
  if (!data.ok()) return Annotate(data.status(), path);
  return data;
}

StatusOr<std::string> DirFd::ReadFileInRoot(std::string_view path, size_t bytes_max) const {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenAt2(path, O_RDONLY | O_NONBLOCK, 0,
                                        RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, fmt::format("stat {}", path));
  if (!S_ISREG(st.st_mode)) return WrongType(path, "a regular file");
  return ReadAll(fd.get(), bytes_max);
}

StatusOr<DirFd> DirFd::OpenParent(std::string_view path, std::string* name) const {
  size_t slash = path.rfind('/');
  *name = std::string(slash == std::string_view::npos ? path : path.substr(slash + 1));
  if (name->empty() || *name == "." || *name == ".." || name->find('\0') != std::string::npos) {
    return ErrnoStatus(EINVAL, fmt::format("path '{}'", path));
  }
  if (slash == 0) return ErrnoStatus(EXDEV, fmt::format("absolute path '{}'", path));
  return OpenDir(slash == std::string_view::npos ? std::string_view(".") : path.substr(0, slash));
}

Status DirFd::WriteVia(std::string_view path, std::string_view data, mode_t mode, Ownership owner,
                       bool sync) const {
  std::string name;
  ASSIGN_OR_RETURN(DirFd parent, OpenParent(path, &name));
  const std::string temp = TempName(name);
  ASSIGN_OR_RETURN(UniqueFd fd, parent.Open(temp, O_WRONLY | O_CREAT | O_EXCL, 0600));
  Status status = WriteAll(fd.get(), data);
  if (status.ok()) status = SetOwnerAndMode(fd.get(), owner, mode);
  if (status.ok() && sync && fsync(fd.get()) != 0) status = ErrnoStatus(errno, "fsync");
  if (status.ok() && renameat(parent.fd(), temp.c_str(), parent.fd(), name.c_str()) != 0) {
    status = ErrnoStatus(errno, "rename");
  }
  if (!status.ok()) {
    unlinkat(parent.fd(), temp.c_str(), 0);
    return Annotate(status, fmt::format("write {}", path));
  }
  if (sync && fsync(parent.fd()) != 0) {
    return ErrnoStatus(errno, fmt::format("fsync the directory of {}", path));
  }
  return OkStatus();
}

Status DirFd::WriteFile(std::string_view path, std::string_view data, mode_t mode,
                        Ownership owner) const {
  return WriteVia(path, data, mode, owner, /*sync=*/false);
}

Status DirFd::DurableWrite(std::string_view path, std::string_view data, mode_t mode,
                           Ownership owner) const {
  return WriteVia(path, data, mode, owner, /*sync=*/true);
}

Status DirFd::MkdirExclusive(std::string_view path, mode_t mode, Ownership owner) const {
  std::string name;
  ASSIGN_OR_RETURN(DirFd parent, OpenParent(path, &name));
  if (mkdirat(parent.fd(), name.c_str(), 0700) != 0) {
    return ErrnoStatus(errno, fmt::format("mkdir {}", path));
  }
  ASSIGN_OR_RETURN(DirFd made, parent.OpenDir(name));
  return SetOwnerAndMode(made.fd(), owner, mode);
}

StatusOr<DirFd> DirFd::MkdirOrOpen(std::string_view path, mode_t mode, Ownership owner) const {
  Status status = MkdirExclusive(path, mode, owner);
  if (!status.ok() && status.code() != Code::kAlreadyExists) return status;
  ASSIGN_OR_RETURN(DirFd dir, OpenDir(path));
  if (!status.ok()) RETURN_IF_ERROR(SetOwnerAndMode(dir.fd(), owner, mode));
  return dir;
}

Status DirFd::RenameWith(std::string_view from, std::string_view to, unsigned flags) const {
  std::string from_name;
  std::string to_name;
  ASSIGN_OR_RETURN(DirFd from_parent, OpenParent(from, &from_name));
  ASSIGN_OR_RETURN(DirFd to_parent, OpenParent(to, &to_name));
  if (renameat2(from_parent.fd(), from_name.c_str(), to_parent.fd(), to_name.c_str(), flags) != 0) {
    return ErrnoStatus(errno, fmt::format("rename {} to {}", from, to));
  }
  return OkStatus();
}

Status DirFd::Rename(std::string_view from, std::string_view to) const {
  return RenameWith(from, to, 0);
}

Status DirFd::RenameNoReplace(std::string_view from, std::string_view to) const {
  return RenameWith(from, to, RENAME_NOREPLACE);
}

Status DirFd::Unlink(std::string_view path) const {
  std::string name;
  ASSIGN_OR_RETURN(DirFd parent, OpenParent(path, &name));
  if (unlinkat(parent.fd(), name.c_str(), 0) == 0) return OkStatus();
  return ErrnoStatus(errno, fmt::format("unlink {}", path));
}

Status DirFd::Rmdir(std::string_view path) const {
  std::string name;
  ASSIGN_OR_RETURN(DirFd parent, OpenParent(path, &name));
  if (unlinkat(parent.fd(), name.c_str(), AT_REMOVEDIR) == 0) return OkStatus();
  return ErrnoStatus(errno, fmt::format("rmdir {}", path));
}

StatusOr<std::vector<DirEntry>> DirFd::List() const { return List("."); }

StatusOr<std::vector<DirEntry>> DirFd::List(std::string_view path) const {
  // A descriptor of its own, since readdir moves the offset that a dup would share.
  ASSIGN_OR_RETURN(UniqueFd fd, OpenAt2(path, O_RDONLY | O_DIRECTORY, 0, kBeneath));
  std::unique_ptr<DIR, int (*)(DIR*)> dir(fdopendir(fd.get()), closedir);
  if (dir == nullptr) return ErrnoStatus(errno, fmt::format("list {}", path));
  fd.Release();  // closedir owns it now
  std::vector<DirEntry> out;
  for (;;) {
    errno = 0;
    const dirent* entry = readdir(dir.get());
    if (entry == nullptr) break;
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    unsigned char type = entry->d_type;
    if (type == DT_UNKNOWN) {
      struct stat st;
      if (fstatat(dirfd(dir.get()), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
      type = IFTODT(st.st_mode);
    }
    out.push_back({std::move(name), type == DT_DIR, type == DT_REG});
  }
  if (errno != 0) return ErrnoStatus(errno, fmt::format("list {}", path));
  std::sort(out.begin(), out.end(),
            [](const DirEntry& a, const DirEntry& b) { return a.name < b.name; });
  return out;
}

StatusOr<DiskSpace> DirFd::Space() const {
  struct statvfs fs;
  if (fstatvfs(fd_.get(), &fs) != 0) return ErrnoStatus(errno, "statvfs");
  auto unit = static_cast<int64_t>(fs.f_frsize);
  DiskSpace out;
  out.free_bytes = static_cast<int64_t>(fs.f_bavail) * unit;
  out.total_bytes = static_cast<int64_t>(fs.f_blocks) * unit;
  // Some file systems (btrfs) have no inode table and report 0 of 0.
  out.free_inodes = fs.f_files == 0 ? INT64_MAX : static_cast<int64_t>(fs.f_favail);
  return out;
}

Status SetOwnerAndMode(int fd, Ownership owner, mode_t mode) {
  bool change = owner.uid != Ownership::kKeep || owner.gid != Ownership::kKeep;
  if (change && fchown(fd, owner.uid, owner.gid) != 0) return ErrnoStatus(errno, "chown");
  if (fchmod(fd, mode) != 0) return ErrnoStatus(errno, "chmod");
  return OkStatus();
}

Status WriteAll(int fd, std::string_view data) {
  while (!data.empty()) {
    ssize_t n = write(fd, data.data(), data.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write");
    data.remove_prefix(static_cast<size_t>(n));
  }
  return OkStatus();
}

StatusOr<std::string> ReadAll(int fd, size_t bytes_max) {
  std::string out;
  char buffer[16384];
  for (;;) {
    ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "read");
    if (n == 0) return out;
    if (out.size() + static_cast<size_t>(n) > bytes_max) {
      return Error(Code::kResourceExhausted, "INTERNAL",
                   fmt::format("longer than {} bytes", bytes_max));
    }
    out.append(buffer, static_cast<size_t>(n));
  }
}

StatusOr<UniqueFd> LockFile(const DirFd& dir, std::string_view path) {
  ASSIGN_OR_RETURN(UniqueFd fd, dir.OpenRegular(path, O_RDWR | O_CREAT, 0600));
  if (flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno != EWOULDBLOCK) return ErrnoStatus(errno, fmt::format("lock {}", path));
  return Error(Code::kFailedPrecondition, "INTERNAL",
               fmt::format("{} is held by another process that uses this directory", path));
}

StatusOr<std::string> BootId() {
  UniqueFd fd(open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open boot_id");
  ASSIGN_OR_RETURN(std::string text, ReadAll(fd.get(), 128));
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace torpor::os
