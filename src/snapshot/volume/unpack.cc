#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "model/reasons.h"
#include "snapshot/volume/tar_format.h"
#include "snapshot/volume/volume.h"

namespace torpor::snapshot {
namespace {

using tar::Corrupt;
using tar::Entry;
using tar::Extent;
using tar::Type;

constexpr size_t kBuffer = 256 << 10;

// Bytes of the archive in order, through a buffer.
class Reader {
 public:
  Reader(int fd, MonotonicTime deadline) : fd_(fd), deadline_(deadline), buffer_(kBuffer, '\0') {}

  // The next 1 to `max` bytes, valid until the next call; DATA_LOSS at the end of the archive.
  StatusOr<std::string_view> Some(size_t max) {
    if (begin_ == end_) {
      if (std::chrono::steady_clock::now() >= deadline_) {
        return Fail(reasons::kDeadlineExceeded, "no time left while restoring a volume");
      }
      ssize_t got;
      do {
        got = read(fd_, buffer_.data(), buffer_.size());
      } while (got < 0 && errno == EINTR);
      if (got < 0) return ErrnoStatus(errno, "read volume archive");
      if (got == 0) return Corrupt("it ends too early");
      begin_ = 0;
      end_ = static_cast<size_t>(got);
    }
    std::string_view part(buffer_.data() + begin_, std::min(max, end_ - begin_));
    begin_ += part.size();
    return part;
  }

  Status Exactly(size_t size, std::string* out) {
    out->clear();
    while (out->size() < size) {
      ASSIGN_OR_RETURN(std::string_view part, Some(size - out->size()));
      out->append(part);
    }
    return OkStatus();
  }

  Status Padding(int64_t data) {
    std::string rest;
    RETURN_IF_ERROR(Exactly(tar::PaddingOf(data), &rest));
    if (rest.find_first_not_of('\0') != std::string::npos) return Corrupt("padding is not empty");
    return OkStatus();
  }

 private:
  const int fd_;
  const MonotonicTime deadline_;
  std::string buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;
};

class Unpacker {
 public:
  Unpacker(int in, const os::DirFd& root, MonotonicTime deadline)
      : reader_(in, deadline), root_(root) {}

  Status Run() {
    for (int64_t entries = 0;; ++entries) {
      if (entries > tar::kEntriesMax) return Corrupt("it has too many entries");
      ASSIGN_OR_RETURN(std::optional<Entry> entry, Next());
      if (!entry.has_value()) break;
      const bool is_root = entry->path == ".";
      if (is_root != (entries == 0) || (is_root && entry->type != Type::kDirectory)) {
        return Corrupt("the volume itself is not its first entry");
      }
      RETURN_IF_ERROR(Take(*entry));
    }
    if (open_.empty()) return Corrupt("it is empty");
    while (!open_.empty()) RETURN_IF_ERROR(CloseDirectory());
    return OkStatus();
  }

 private:
  // A directory whose entries are being made. Its own time and mode come last.
  struct Directory {
    std::string path;
    uint32_t mode = 0;
    timespec mtime = {};
  };

  StatusOr<std::optional<tar::Header>> NextHeader() {
    RETURN_IF_ERROR(reader_.Exactly(tar::kBlock, &block_));
    return tar::ParseHeader(block_);
  }

  // Null at the end of the archive.
  StatusOr<std::optional<Entry>> Next() {
    ASSIGN_OR_RETURN(std::optional<tar::Header> header, NextHeader());
    if (!header.has_value()) return std::optional<Entry>();
    std::string pax;
    if (header->type == Type::kPax) {
      if (header->size > static_cast<int64_t>(tar::kPaxBytesMax)) {
        return Corrupt("an extended header is too large");
      }
      RETURN_IF_ERROR(reader_.Exactly(static_cast<size_t>(header->size), &pax));
      RETURN_IF_ERROR(reader_.Padding(header->size));
      ASSIGN_OR_RETURN(header, NextHeader());
      if (!header.has_value() || header->type == Type::kPax) {
        return Corrupt("an extended header without its entry");
      }
    }
    ASSIGN_OR_RETURN(Entry entry, tar::ParseEntry(*header, pax));
    return std::optional<Entry>(std::move(entry));
  }

  Status Take(const Entry& entry) {
    if (entry.path == ".") {
      RETURN_IF_ERROR(Decorate(root_.fd(), entry));
      open_.push_back({".", entry.mode, entry.mtime});
      return OkStatus();
    }
    std::string_view parent = tar::ParentOf(entry.path);
    while (open_.back().path != parent) {
      RETURN_IF_ERROR(CloseDirectory());
      if (open_.empty()) return Corrupt("an entry comes before its directory, or too late");
    }
    if (!parent_.valid()) {
      ASSIGN_OR_RETURN(parent_, OpenDirectory(open_.back().path));
    }
    std::string name = entry.path.substr(parent == "." ? 0 : parent.size() + 1);
    Status status;
    switch (entry.type) {
      case Type::kDirectory:
        return MakeDirectory(entry, name);
      case Type::kSymlink:
        status = MakeSymlink(entry, name);
        break;
      case Type::kHardLink:
        status = MakeHardLink(entry, name);
        break;
      default:
        status = MakeFile(entry, name);
    }
    // Something of that name is there already, or a link stands where a directory should be.
    if (status.code() == Code::kAlreadyExists) return Corrupt("two entries have one name");
    if (status.code() == Code::kInvalidArgument) return Corrupt("an entry lies behind a link");
    return status;
  }

  StatusOr<os::DirFd> OpenDirectory(const std::string& path) const {
    // A second descriptor of the root, so that every directory is held alike.
    return root_.OpenDir(path);
  }

  Status MakeDirectory(const Entry& entry, const std::string& name) {
    Status made = parent_.MkdirExclusive(name, 0700);
    if (made.code() == Code::kAlreadyExists) return Corrupt("two entries have one name");
    RETURN_IF_ERROR(made);
    ASSIGN_OR_RETURN(parent_, parent_.OpenDir(name));
    RETURN_IF_ERROR(Decorate(parent_.fd(), entry));
    open_.push_back({entry.path, entry.mode, entry.mtime});
    return OkStatus();
  }

  // Mode and time of the innermost open directory, which nothing is added to any more.
  Status CloseDirectory() {
    Directory directory = std::move(open_.back());
    open_.pop_back();
    parent_ = os::DirFd();
    ASSIGN_OR_RETURN(os::DirFd dir, OpenDirectory(directory.path));
    // The group's inheritance is harmless, the bits of a program's owner are not.
    if (fchmod(dir.fd(), directory.mode & 03777) != 0) return ErrnoStatus(errno, "chmod");
    return SetTime(dir.fd(), directory.mtime);
  }

  Status MakeSymlink(const Entry& entry, const std::string& name) {
    if (symlinkat(entry.link.c_str(), parent_.fd(), name.c_str()) != 0) {
      return ErrnoStatus(errno, "symlink");
    }
    if (!IsOurs(entry) &&
        fchownat(parent_.fd(), name.c_str(), entry.uid, entry.gid, AT_SYMLINK_NOFOLLOW) != 0) {
      return ErrnoStatus(errno, "chown of a link");
    }
    const timespec times[2] = {entry.mtime, entry.mtime};
    if (utimensat(parent_.fd(), name.c_str(), times, AT_SYMLINK_NOFOLLOW) != 0) {
      return ErrnoStatus(errno, "utimens of a link");
    }
    return OkStatus();
  }

  Status MakeHardLink(const Entry& entry, const std::string& name) {
    // Through the directory of the first name: a link in its path is not followed.
    auto from = OpenDirectory(std::string(tar::ParentOf(entry.link)));
    if (from.status().code() == Code::kNotFound) return Corrupt("a hard link to nothing");
    RETURN_IF_ERROR(from.status());
    std::string source = entry.link.substr(entry.link.rfind('/') + 1);
    if (linkat(from->fd(), source.c_str(), parent_.fd(), name.c_str(), 0) == 0) return OkStatus();
    if (errno == ENOENT || errno == EPERM) return Corrupt("a hard link to nothing");
    return ErrnoStatus(errno, "link");
  }

  Status MakeFile(const Entry& entry, const std::string& name) {
    ASSIGN_OR_RETURN(UniqueFd fd, parent_.Open(name, O_WRONLY | O_CREAT | O_EXCL, 0600));
    RETURN_IF_ERROR(entry.sparse ? WriteSparse(fd.get(), entry)
                                 : WriteData(fd.get(), {0, entry.stored}));
    RETURN_IF_ERROR(reader_.Padding(entry.stored));
    RETURN_IF_ERROR(Decorate(fd.get(), entry));
    if (fchmod(fd.get(), entry.mode & 01777) != 0) return ErrnoStatus(errno, "chmod");
    return SetTime(fd.get(), entry.mtime);
  }

  Status WriteSparse(int fd, const Entry& entry) {
    int64_t map_bytes = 0;
    ASSIGN_OR_RETURN(std::vector<Extent> extents, ReadMap(entry, &map_bytes));
    if (!tar::AreExtentsOf(extents, entry.size, entry.stored - map_bytes)) {
      return Corrupt("the map of a sparse file is wrong");
    }
    if (ftruncate(fd, entry.size) != 0) return ErrnoStatus(errno, "truncate");
    for (const Extent& extent : extents) RETURN_IF_ERROR(WriteData(fd, extent));
    return OkStatus();
  }

  StatusOr<std::vector<Extent>> ReadMap(const Entry& entry, int64_t* map_bytes) {
    std::string text;
    int64_t left = -1;  // numbers that are still to come
    std::vector<int64_t> numbers;
    while (left != 0) {
      if (*map_bytes + static_cast<int64_t>(tar::kBlock) > entry.stored) {
        return Corrupt("the map of a sparse file does not end");
      }
      RETURN_IF_ERROR(reader_.Exactly(tar::kBlock, &block_));
      *map_bytes += static_cast<int64_t>(tar::kBlock);
      text += block_;
      std::string_view rest = text;
      int64_t number = 0;
      while (left != 0 && tar::TakeNumber(&rest, &number)) {
        if (left < 0) {
          if (number > static_cast<int64_t>(tar::kExtentsMax)) {
            return Corrupt("a sparse file has too many pieces");
          }
          left = 2 * number;
        } else {
          numbers.push_back(number);
          --left;
        }
      }
      text = std::string(rest);
      if (left != 0 && text.size() > 32) return Corrupt("the map of a sparse file has no numbers");
    }
    std::vector<Extent> extents;
    for (size_t i = 0; i + 1 < numbers.size(); i += 2) {
      extents.push_back({numbers[i], numbers[i + 1]});
    }
    return extents;
  }

  Status WriteData(int fd, const Extent& extent) {
    for (int64_t done = 0; done < extent.length;) {
      ASSIGN_OR_RETURN(std::string_view part,
                       reader_.Some(static_cast<size_t>(std::min<int64_t>(
                           static_cast<int64_t>(kBuffer), extent.length - done))));
      int64_t at = extent.offset + done;
      done += static_cast<int64_t>(part.size());
      while (!part.empty()) {
        ssize_t written = pwrite(fd, part.data(), part.size(), at);
        if (written < 0 && errno == EINTR) continue;
        if (written < 0) return ErrnoStatus(errno, "write to a volume");
        part.remove_prefix(static_cast<size_t>(written));
        at += written;
      }
    }
    return OkStatus();
  }

  // Owner and attributes; the owner first, because chown clears bits.
  Status Decorate(int fd, const Entry& entry) {
    if (!IsOurs(entry) && fchown(fd, entry.uid, entry.gid) != 0) {
      return ErrnoStatus(errno, "chown");
    }
    for (const auto& [name, value] : entry.xattrs) {
      if (fsetxattr(fd, name.c_str(), value.data(), value.size(), 0) != 0) {
        return ErrnoStatus(errno, "setxattr");
      }
    }
    return OkStatus();
  }

  static Status SetTime(int fd, const timespec& mtime) {
    const timespec times[2] = {mtime, mtime};
    return futimens(fd, times) == 0 ? OkStatus() : ErrnoStatus(errno, "utimens");
  }

  bool IsOurs(const Entry& entry) const { return entry.uid == uid_ && entry.gid == gid_; }

  Reader reader_;
  const os::DirFd& root_;
  const uint32_t uid_ = geteuid();
  const uint32_t gid_ = getegid();
  std::string block_;
  std::vector<Directory> open_;  // the path to the entry at hand; its depth is bounded by kPathMax
  os::DirFd parent_;             // of open_.back(); invalid = to be opened
};

}  // namespace

Status UnpackVolume(int in, const os::DirFd& root, MonotonicTime deadline) {
  return Unpacker(in, root, deadline).Run();
}

}  // namespace torpor::snapshot
