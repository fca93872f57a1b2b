#include <errno.h>
#include <fcntl.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "model/reasons.h"
#include "snapshot/volume/tar_format.h"
#include "snapshot/volume/volume.h"

namespace torpor::snapshot {
namespace {

using tar::Entry;
using tar::Extent;
using tar::Type;

constexpr size_t kBuffer = 256 << 10;
constexpr std::string_view kUser = "user.";

Status Impossible(std::string_view what) {
  return Error(Code::kFailedPrecondition, reasons::kInternal.name,
               fmt::format("the volume cannot be saved: {}", what));
}

class Packer {
 public:
  Packer(const os::DirFd& root, int out, MonotonicTime deadline)
      : root_(root), out_(out), deadline_(deadline), buffer_(kBuffer, '\0') {}

  StatusOr<PackReport> Run() {
    RETURN_IF_ERROR(AddDirectory("."));
    RETURN_IF_ERROR(Append(std::string(2 * tar::kBlock, '\0')));
    RETURN_IF_ERROR(Flush());
    return report_;
  }

 private:
  static std::string Join(const std::string& dir, const std::string& name) {
    return dir == "." ? name : dir + "/" + name;
  }

  // The directory itself, what is in it, then the directories in it. No descriptor is held while
  // one further down is read, so depth costs no descriptors.
  Status AddDirectory(const std::string& path) {
    std::vector<std::string> directories;
    {
      os::DirFd opened;
      if (path != ".") {
        ASSIGN_OR_RETURN(opened, root_.OpenDir(path));
      }
      const os::DirFd& dir = path == "." ? root_ : opened;
      struct stat st;
      if (fstat(dir.fd(), &st) != 0) return ErrnoStatus(errno, "stat " + path);
      Entry entry = Describe(Type::kDirectory, path, st);
      RETURN_IF_ERROR(ReadXattrs(dir.fd(), &entry));
      RETURN_IF_ERROR(Add(entry));
      ASSIGN_OR_RETURN(std::vector<os::DirEntry> children, dir.List());
      for (const os::DirEntry& child : children) {
        if (child.is_directory) {
          directories.push_back(child.name);
        } else {
          RETURN_IF_ERROR(AddOther(dir, child.name, Join(path, child.name)));
        }
      }
    }
    for (const std::string& name : directories) RETURN_IF_ERROR(AddDirectory(Join(path, name)));
    return OkStatus();
  }

  Status AddOther(const os::DirFd& dir, const std::string& name, const std::string& path) {
    ASSIGN_OR_RETURN(struct stat st, dir.Stat(name));
    if (!S_ISREG(st.st_mode) && !S_ISLNK(st.st_mode)) {
      ++report_.skipped;
      return OkStatus();
    }
    if (st.st_nlink > 1) {
      auto [first, is_first] = links_.emplace(std::pair(st.st_dev, st.st_ino), path);
      if (!is_first) {
        Entry entry = Describe(Type::kHardLink, path, st);
        entry.link = first->second;
        return Add(entry);
      }
    }
    return S_ISLNK(st.st_mode) ? AddSymlink(dir, name, path, st) : AddFile(dir, name, path);
  }

  Status AddSymlink(const os::DirFd& dir, const std::string& name, const std::string& path,
                    const struct stat& st) {
    Entry entry = Describe(Type::kSymlink, path, st);
    ssize_t size = readlinkat(dir.fd(), name.c_str(), buffer_.data(), buffer_.size());
    if (size < 0) return ErrnoStatus(errno, "readlink " + path);
    entry.link.assign(buffer_.data(), static_cast<size_t>(size));
    return Add(entry);
  }

  Status AddFile(const os::DirFd& dir, const std::string& name, const std::string& path) {
    ASSIGN_OR_RETURN(UniqueFd fd, dir.OpenRegular(name, O_RDONLY));
    struct stat st;
    if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, "stat " + path);
    Entry entry = Describe(Type::kFile, path, st);
    entry.size = st.st_size;
    RETURN_IF_ERROR(ReadXattrs(fd.get(), &entry));
    ASSIGN_OR_RETURN(std::vector<Extent> extents, ExtentsOf(fd.get(), st.st_size, path));
    int64_t data = 0;
    for (const Extent& extent : extents) data += extent.length;
    std::string map;
    entry.sparse = data != st.st_size;
    if (entry.sparse) {
      extents.push_back({st.st_size, 0});  // other programs take the file's end from here
      map = tar::FormatMap(extents);
    }
    entry.stored = data + static_cast<int64_t>(map.size());
    RETURN_IF_ERROR(Add(entry));
    RETURN_IF_ERROR(Append(map));
    for (const Extent& extent : extents) RETURN_IF_ERROR(CopyData(fd.get(), extent, path));
    return Append(std::string(tar::PaddingOf(entry.stored), '\0'));
  }

  // Gaps below a bound are taken for data, and the bound grows until the map has a decent size.
  StatusOr<std::vector<Extent>> ExtentsOf(int fd, int64_t size, const std::string& path) {
    for (int64_t gap_min = 4096;; gap_min *= 4) {
      std::vector<Extent> extents;
      int64_t at = 0;
      while (at < size && extents.size() < tar::kExtentsMax) {
        int64_t begin = lseek(fd, at, SEEK_DATA);
        if (begin < 0 && errno == ENXIO) break;  // a hole to the end
        int64_t end = begin < 0 ? -1 : lseek(fd, begin, SEEK_HOLE);
        if (begin < 0 || end < 0) return ErrnoStatus(errno, "lseek " + path);
        end = std::min(end, size);
        if (!extents.empty() && begin - (extents.back().offset + extents.back().length) < gap_min) {
          extents.back().length = end - extents.back().offset;
        } else {
          extents.push_back({begin, end - begin});
        }
        at = end;
      }
      if (extents.size() < tar::kExtentsMax) return extents;
      RETURN_IF_ERROR(CheckTime());
    }
  }

  Status CopyData(int fd, const Extent& extent, const std::string& path) {
    for (int64_t done = 0; done < extent.length;) {
      RETURN_IF_ERROR(CheckTime());
      RETURN_IF_ERROR(Flush());
      size_t want = static_cast<size_t>(
          std::min<int64_t>(static_cast<int64_t>(kBuffer), extent.length - done));
      ssize_t got = pread(fd, buffer_.data(), want, extent.offset + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) return ErrnoStatus(errno, "read " + path);
      if (got == 0) return Impossible(path + " became shorter meanwhile");
      RETURN_IF_ERROR(Annotate(os::WriteAll(out_, {buffer_.data(), static_cast<size_t>(got)})));
      done += got;
    }
    return OkStatus();
  }

  static Entry Describe(Type type, const std::string& path, const struct stat& st) {
    Entry entry;
    entry.type = type;
    entry.path = path;
    entry.mode = st.st_mode & 07777;
    entry.uid = st.st_uid;
    entry.gid = st.st_gid;
    entry.mtime = st.st_mtim;
    return entry;
  }

  Status ReadXattrs(int fd, Entry* entry) {
    std::string names(buffer_.size(), '\0');
    ssize_t size = flistxattr(fd, names.data(), names.size());
    if (size < 0 && errno == ENOTSUP) return OkStatus();
    if (size < 0) return ErrnoStatus(errno, "listxattr " + entry->path);
    std::string_view rest(names.data(), static_cast<size_t>(size));
    while (!rest.empty()) {
      std::string name(rest.substr(0, rest.find('\0')));
      rest.remove_prefix(std::min(rest.size(), name.size() + 1));
      if (name.substr(0, kUser.size()) != kUser) continue;
      ssize_t length = fgetxattr(fd, name.c_str(), buffer_.data(), buffer_.size());
      if (length < 0) return ErrnoStatus(errno, "getxattr " + entry->path);
      entry->xattrs[name].assign(buffer_.data(), static_cast<size_t>(length));
    }
    return OkStatus();
  }

  Status Add(const Entry& entry) {
    RETURN_IF_ERROR(CheckTime());
    if (++report_.entries > tar::kEntriesMax) return Impossible("it has too many entries");
    ASSIGN_OR_RETURN(std::string text, tar::FormatEntry(entry));
    return Append(text);
  }

  // Small things are gathered; file data go past them (CopyData flushes first).
  Status Append(std::string_view text) {
    pending_.append(text);
    return pending_.size() < kBuffer ? OkStatus() : Flush();
  }
  Status Flush() {
    if (pending_.empty()) return OkStatus();
    Status status = Annotate(os::WriteAll(out_, pending_));
    pending_.clear();
    return status;
  }
  static Status Annotate(Status status) {
    return status.ok() ? status : torpor::Annotate(status, "volume archive");
  }

  Status CheckTime() const {
    if (std::chrono::steady_clock::now() < deadline_) return OkStatus();
    return Fail(reasons::kDeadlineExceeded, "no time left while saving a volume");
  }

  const os::DirFd& root_;
  const int out_;
  const MonotonicTime deadline_;
  std::string buffer_;
  std::string pending_;
  std::map<std::pair<dev_t, ino_t>, std::string> links_;  // where a file with several names is
  PackReport report_;
};

}  // namespace

std::string VolumeFileName(std::string_view volume) { return fmt::format("volume-{}.tar", volume); }

StatusOr<PackReport> PackVolume(const os::DirFd& root, int out, MonotonicTime deadline) {
  return Packer(root, out, deadline).Run();
}

}  // namespace torpor::snapshot
