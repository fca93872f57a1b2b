#include "os/fs/remove.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

namespace torpor::os {
namespace {

// Directories deeper than this below the tree's root are moved up to the root and removed from
// there, so a guest's tree of any depth costs this many descriptors.
constexpr int kDepthMax = 16;

void Keep(Status& first, Status status) {
  if (first.ok() && !status.ok()) first = std::move(status);
}

class Remover {
 public:
  explicit Remover(std::string_view root_name) : root_name_(root_name) {}

  Status Remove(int parent, const std::string& name) {
    auto opened = OpenForRemoval(parent, name);
    if (!opened.ok()) {
      if (opened.status().code() == Code::kNotFound) return OkStatus();
      return opened.status();
    }
    if (!opened->valid()) return UnlinkFile(parent, name);
    root_ = opened->get();
    Status first;
    // Each pass removes what the one before it moved up; a pass without a move is the last.
    do {
      moved_ = 0;
      Keep(first, Empty(root_, 0));
    } while (moved_ > 0 && first.ok());
    if (!first.ok()) return first;
    if (unlinkat(parent, name.c_str(), AT_REMOVEDIR) != 0 && errno != ENOENT) {
      return Failed("rmdir", name, errno);
    }
    return OkStatus();
  }

 private:
  Status Failed(std::string_view what, std::string_view name, int error) const {
    if (error == EXDEV || error == EBUSY) {
      return Error(Code::kUnavailable, "VOLUME_BUSY",
                   fmt::format("{} in {} is a mount point; it stays until it is unmounted", name,
                               root_name_));
    }
    return ErrnoStatus(error, fmt::format("{} {} in {}", what, name, root_name_));
  }

  Status UnlinkFile(int parent, const std::string& name) {
    if (unlinkat(parent, name.c_str(), 0) == 0 || errno == ENOENT) return OkStatus();
    return Failed("unlink", name, errno);
  }

  // A readable descriptor of the directory `name`; an invalid one when it is no directory.
  StatusOr<UniqueFd> OpenForRemoval(int parent, const std::string& name) {
    struct open_how how = {};
    how.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC;
    // No RESOLVE_NO_SYMLINKS: with O_PATH | O_NOFOLLOW the link itself is what gets opened.
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
    UniqueFd path(static_cast<int>(syscall(SYS_openat2, parent, name.c_str(), &how, sizeof how)));
    if (!path.valid()) return Failed("open", name, errno);
    struct stat st;
    if (fstat(path.get(), &st) != 0) return Failed("stat", name, errno);
    if (!S_ISDIR(st.st_mode)) return UniqueFd();
    std::string self = fmt::format("/proc/self/fd/{}", path.get());
    if ((st.st_mode & S_IRWXU) != S_IRWXU && chmod(self.c_str(), st.st_mode | S_IRWXU) != 0) {
      return Failed("chmod", name, errno);
    }
    UniqueFd dir(openat(path.get(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!dir.valid()) return Failed("open", name, errno);
    return dir;
  }

  Status Empty(int dir, int depth) {
    UniqueFd copy(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!copy.valid()) return Failed("open", ".", errno);
    auto entries = DirFd(std::move(copy)).List();
    RETURN_IF_ERROR(entries.status());
    Status first;
    for (const DirEntry& entry : *entries) {
      if (!entry.is_directory) {
        Keep(first, UnlinkFile(dir, entry.name));
      } else {
        Keep(first, RemoveSubdirectory(dir, entry.name, depth));
      }
    }
    return first;
  }

  Status RemoveSubdirectory(int dir, const std::string& name, int depth) {
    auto sub = OpenForRemoval(dir, name);
    RETURN_IF_ERROR(sub.status());
    if (depth >= kDepthMax) return MoveUp(dir, name);
    if (sub->valid()) RETURN_IF_ERROR(Empty(sub->get(), depth + 1));
    if (unlinkat(dir, name.c_str(), AT_REMOVEDIR) == 0 || errno == ENOENT) return OkStatus();
    return Failed("rmdir", name, errno);
  }

  // The guest may use the same names: the next number is tried until one is free.
  Status MoveUp(int dir, const std::string& name) {
    for (;;) {
      std::string up = fmt::format(".deep-{}", ++deep_);
      if (renameat2(dir, name.c_str(), root_, up.c_str(), RENAME_NOREPLACE) == 0) {
        ++moved_;
        return OkStatus();
      }
      if (errno != EEXIST) return Failed("move up", name, errno);
    }
  }

  const std::string root_name_;
  int root_ = -1;
  uint64_t deep_ = 0;
  uint64_t moved_ = 0;
};

}  // namespace

Status RemoveTree(const DirFd& parent, std::string_view name) {
  if (name.empty() || name == "." || name == ".." || name.find('/') != std::string_view::npos ||
      name.find('\0') != std::string_view::npos) {
    return ErrnoStatus(EINVAL, fmt::format("remove '{}'", name));
  }
  return Remover(name).Remove(parent.fd(), std::string(name));
}

Status Retire(const DirFd& parent, std::string_view name, WallTime now) {
  auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(now.time_since_epoch()).count();
  // The clock may stand still in a test or step back: the next free number is as good.
  for (int attempt = 0;; ++attempt) {
    Status status = parent.RenameNoReplace(
        name, fmt::format("{}{}-{}", kRetiredPrefix, name.substr(0, 128), ns + attempt));
    if (status.code() == Code::kNotFound) return OkStatus();
    if (status.code() != Code::kAlreadyExists || attempt >= 1000) return status;
  }
}

Status SweepRetired(const DirFd& parent) {
  ASSIGN_OR_RETURN(std::vector<DirEntry> entries, parent.List());
  Status first;
  for (const DirEntry& entry : entries) {
    if (entry.name.rfind(kRetiredPrefix, 0) == 0) Keep(first, RemoveTree(parent, entry.name));
  }
  return first;
}

}  // namespace torpor::os
