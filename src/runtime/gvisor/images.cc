#include "runtime/gvisor/images.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <memory>

#include <fmt/format.h>

#include "base/unique_fd.h"
#include "model/reasons.h"
#include "runtime/gvisor/page_cache.h"

namespace torpor::gvisor {
namespace {

constexpr double kCachedEnough = 0.9;
constexpr uint64_t kAlmostNothing = 1 << 20;  // bytes

// How a runsc state file begins: its magic, see pkg/state/statefile of gVisor.
constexpr char kStateMagic[] = "\x67\x56\x69\x73\x6f\x72\x53\x46";

Status Corrupt(const std::string& file, std::string_view what) {
  return Fail(reasons::kSnapshotCorrupt, fmt::format("{}: {}", file, what), {{"file", file}});
}

}  // namespace

bool UseDirect(const DirectInput& input) {
  return input.flag && input.file_system && input.cached < kCachedEnough;
}

bool SupportsDirect(const std::string& directory, bool writable) {
  if (writable) {
    UniqueFd fd(open(directory.c_str(), O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600));
    return fd.valid();
  }
  UniqueFd fd(open((directory + "/" + kPagesFile).c_str(), O_RDONLY | O_DIRECT | O_CLOEXEC));
  return fd.valid();
}

double CachedFraction(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat st;
  if (!fd.valid() || fstat(fd.get(), &st) != 0 || st.st_size == 0) return 0;
  auto cached = FileCache::Real()->Query(fd.get());
  if (!cached.has_value()) return 0;
  double pages = static_cast<double>(st.st_size) / static_cast<double>(sysconf(_SC_PAGESIZE));
  return std::min(1.0, static_cast<double>(cached->cached) / pages);
}

bool IsFull(const std::string& directory) {
  struct statvfs fs;
  return statvfs(directory.c_str(), &fs) == 0 && fs.f_bavail * fs.f_frsize < kAlmostNothing;
}

StatusOr<std::vector<torpor::v1::SnapshotFile>> ListImage(const std::string& directory) {
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(directory.c_str()), closedir);
  if (dir == nullptr) return ErrnoStatus(errno, "opendir " + directory);
  std::vector<torpor::v1::SnapshotFile> files;
  bool has_state = false;
  while (dirent* entry = readdir(dir.get())) {
    std::string name = entry->d_name;
    if (name == "." || name == "..") continue;
    struct stat st;
    if (fstatat(dirfd(dir.get()), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) {
      return ErrnoStatus(errno, "stat " + directory + "/" + name);
    }
    if (!S_ISREG(st.st_mode)) {
      return Fail(reasons::kInvalidCheckpointResult, name + " in the image is not a regular file");
    }
    has_state = has_state || (name == kStateFile && st.st_size > 0);
    torpor::v1::SnapshotFile& file = files.emplace_back();
    file.set_name(name);
    file.set_logical_bytes(st.st_size);
    file.set_populated_bytes(std::min<int64_t>(st.st_size, st.st_blocks * 512));
    file.set_needed_from(torpor::v1::FIDELITY_MEMORY);
  }
  if (!has_state) {
    return Fail(reasons::kInvalidCheckpointResult,
                fmt::format("runsc checkpoint left no {} in {}", kStateFile, directory));
  }
  std::sort(files.begin(), files.end(),
            [](const auto& a, const auto& b) { return a.name() < b.name(); });
  return files;
}

Status CheckImage(const std::string& directory,
                  const std::vector<torpor::v1::SnapshotFile>& files) {
  for (const torpor::v1::SnapshotFile& file : files) {
    std::string path = directory + "/" + file.name();
    struct stat st;
    if (lstat(path.c_str(), &st) != 0) return Corrupt(file.name(), "is missing in " + directory);
    if (!S_ISREG(st.st_mode)) return Corrupt(file.name(), "is not a regular file");
    if (st.st_size != file.logical_bytes()) {
      return Corrupt(file.name(), fmt::format("is {} bytes long instead of {}", st.st_size,
                                              file.logical_bytes()));
    }
  }
  UniqueFd state(open((directory + "/" + kStateFile).c_str(), O_RDONLY | O_CLOEXEC));
  if (!state.valid()) return Corrupt(kStateFile, "cannot be opened in " + directory);
  char magic[sizeof kStateMagic - 1] = {};
  if (read(state.get(), magic, sizeof magic) != static_cast<ssize_t>(sizeof magic) ||
      !std::equal(magic, magic + sizeof magic, kStateMagic)) {
    return Corrupt(kStateFile, "does not begin like a saved state");
  }
  return OkStatus();
}

}  // namespace torpor::gvisor
