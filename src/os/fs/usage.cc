#include "os/fs/usage.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include <fmt/format.h>

namespace torpor::os {
namespace {

constexpr size_t kMountinfoBytesMax = 64 << 20;
// Deeper trees are not followed further; the result says that it is not complete.
constexpr int kDepthMax = 128;

UniqueFd OpenSubdirectory(int dir, const std::string& name) {
  struct open_how how = {};
  how.flags = O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC;
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS | RESOLVE_NO_XDEV;
  return UniqueFd(static_cast<int>(syscall(SYS_openat2, dir, name.c_str(), &how, sizeof how)));
}

void Measure(const DirFd& dir, int depth, TreeUsage* out) {
  auto entries = dir.List();
  if (!entries.ok()) {
    out->complete = false;
    return;
  }
  for (const DirEntry& entry : *entries) {
    struct stat st;
    if (fstatat(dir.fd(), entry.name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      // Removed while we looked is nothing that takes space.
      if (errno != ENOENT) out->complete = false;
      continue;
    }
    out->bytes += st.st_blocks * int64_t{512};
    ++out->inodes;
    if (!S_ISDIR(st.st_mode)) continue;
    UniqueFd sub = depth < kDepthMax ? OpenSubdirectory(dir.fd(), entry.name) : UniqueFd();
    if (sub.valid()) {
      Measure(DirFd(std::move(sub)), depth + 1, out);
    } else {
      out->complete = false;
    }
  }
}

// \040 and its like stand for bytes that would split the line.
std::string Unescape(std::string_view field) {
  std::string out;
  for (size_t i = 0; i < field.size(); ++i) {
    auto digit = [&](size_t at) {
      return at < field.size() && field[at] >= '0' && field[at] < '8';
    };
    if (field[i] == '\\' && digit(i + 1) && digit(i + 2) && digit(i + 3)) {
      out += static_cast<char>((field[i + 1] - '0') * 64 + (field[i + 2] - '0') * 8 +
                               (field[i + 3] - '0'));
      i += 3;
    } else {
      out += field[i];
    }
  }
  return out;
}

}  // namespace

StatusOr<TreeUsage> MeasureTree(const DirFd& dir, std::string_view path) {
  ASSIGN_OR_RETURN(DirFd top, dir.OpenDir(path));
  TreeUsage out;
  struct stat st;
  if (fstat(top.fd(), &st) != 0) return ErrnoStatus(errno, fmt::format("stat {}", path));
  out.bytes = st.st_blocks * int64_t{512};
  out.inodes = 1;
  Measure(top, 0, &out);
  return out;
}

StatusOr<std::vector<std::string>> ParseMountPoints(std::string_view mountinfo) {
  std::vector<std::string> out;
  while (!mountinfo.empty()) {
    size_t end = mountinfo.find('\n');
    std::string_view line = mountinfo.substr(0, end);
    mountinfo.remove_prefix(end == std::string_view::npos ? mountinfo.size() : end + 1);
    // id, parent, major:minor, root, mount point, ...
    for (int skipped = 0; skipped < 4; ++skipped) {
      size_t space = line.find(' ');
      line.remove_prefix(space == std::string_view::npos ? line.size() : space + 1);
    }
    std::string_view point = line.substr(0, line.find(' '));
    if (point.empty() || point.front() != '/') {
      return Error(Code::kDataLoss, "INTERNAL", "a line of mountinfo names no mount point");
    }
    out.push_back(Unescape(point));
  }
  return out;
}

StatusOr<std::vector<std::string>> MountsBelow(const std::string& top) {
  UniqueFd fd(open("/proc/self/mountinfo", O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open mountinfo");
  ASSIGN_OR_RETURN(std::string text, ReadAll(fd.get(), kMountinfoBytesMax));
  ASSIGN_OR_RETURN(std::vector<std::string> points, ParseMountPoints(text));
  std::erase_if(points, [&](const std::string& point) {
    return point != top && point.rfind(top + "/", 0) != 0;
  });
  return points;
}

}  // namespace torpor::os
