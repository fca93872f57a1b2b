#include "os/fs/testing/power_cut.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace torpor::os {
namespace {

std::atomic<PowerCut*> current{nullptr};

// 0 when it has vanished meanwhile: others may be removing things.
ino_t InodeOf(const std::string& path) {
  struct stat st;
  return lstat(path.c_str(), &st) == 0 ? st.st_ino : 0;
}

std::string ReadWhole(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return std::string(std::istreambuf_iterator<char>(in), {});
}

}  // namespace

PowerCut::PowerCut(std::string root) : root_(std::move(root)), root_inode_(InodeOf(root_)) {
  MutexLock lock(&mu_);
  RecordTree(root_);
  PowerCut* none = nullptr;
  if (!current.compare_exchange_strong(none, this)) abort();
}

PowerCut::~PowerCut() { current = nullptr; }

void PowerCut::FailFlush(int nth) {
  MutexLock lock(&mu_);
  fail_at_ = flushes_ + nth;
}

int PowerCut::flushes() const {
  MutexLock lock(&mu_);
  return flushes_;
}

void PowerCut::After(const std::string& target) const {
  MutexLock lock(&mu_);
  Make(root_inode_, target);
}

bool PowerCut::TakeFailure() { return ++flushes_ == fail_at_; }

int PowerCut::Flushed(int fd) {
  char path[4096];
  ssize_t n = readlink(("/proc/self/fd/" + std::to_string(fd)).c_str(), path, sizeof path - 1);
  if (n < 0) return EBADF;
  const std::string name(path, static_cast<size_t>(n));
  if (name != root_ && name.rfind(root_ + "/", 0) != 0) return 0;
  struct stat st;
  if (fstat(fd, &st) != 0) return errno;
  MutexLock lock(&mu_);
  if (TakeFailure()) {
    // A file's dirty pages are gone and look clean. A directory's are in the journal, which keeps
    // them for the next attempt.
    if (!S_ISDIR(st.st_mode)) {
      Hold("/proc/self/fd/" + std::to_string(fd), st.st_ino);
      lost_.insert(st.st_ino);
    }
    return EIO;
  }
  if (S_ISDIR(st.st_mode)) {
    RecordDirectory(name);
  } else {
    RecordFile("/proc/self/fd/" + std::to_string(fd), st.st_ino);
  }
  return 0;
}

int PowerCut::FlushedAll() {
  MutexLock lock(&mu_);
  if (TakeFailure()) return EIO;
  RecordTree(root_);
  return 0;
}

void PowerCut::RecordTree(const std::string& path) {
  RecordDirectory(path);
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(path, gone)) {
    if (entry.is_symlink(gone)) continue;
    if (entry.is_directory(gone)) {
      RecordTree(entry.path());
    } else if (entry.is_regular_file(gone)) {
      if (ino_t inode = InodeOf(entry.path()); inode != 0) RecordFile(entry.path(), inode);
    }
  }
}

void PowerCut::RecordDirectory(const std::string& path) {
  const ino_t self = InodeOf(path);
  if (self == 0) return;
  Hold(path, self);
  std::map<std::string, Entry>& entries = directories_[self];
  entries.clear();
  std::error_code gone;
  for (const auto& entry : std::filesystem::directory_iterator(path, gone)) {
    if (entry.is_symlink(gone)) continue;
    const bool is_directory = entry.is_directory(gone);
    if (ino_t inode = InodeOf(entry.path()); inode != 0) {
      entries[entry.path().filename()] = {inode, is_directory};
    }
  }
}

void PowerCut::Hold(const std::string& path, ino_t inode) {
  if (held_.count(inode) == 0) held_[inode] = UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

void PowerCut::RecordFile(const std::string& path, ino_t inode) {
  Hold(path, inode);
  if (lost_.count(inode) == 0) files_[inode] = ReadWhole(path);
}

void PowerCut::Make(ino_t directory, const std::string& target) const {
  std::filesystem::create_directories(target);
  auto known = directories_.find(directory);
  if (known == directories_.end()) return;
  for (const auto& [name, entry] : known->second) {
    const std::string path = target + "/" + name;
    if (entry.directory) {
      Make(entry.inode, path);
      continue;
    }
    auto content = files_.find(entry.inode);
    std::ofstream(path, std::ios::binary) << (content == files_.end() ? "" : content->second);
  }
}

namespace {

int Answer(int error) {
  if (error == 0) return 0;
  errno = error;
  return -1;
}

}  // namespace
}  // namespace torpor::os

extern "C" int fsync(int fd) {
  torpor::os::PowerCut* cut = torpor::os::current;
  return cut == nullptr ? 0 : torpor::os::Answer(cut->Flushed(fd));
}

extern "C" int fdatasync(int fd) { return fsync(fd); }

extern "C" int syncfs(int) noexcept {
  torpor::os::PowerCut* cut = torpor::os::current;
  return cut == nullptr ? 0 : torpor::os::Answer(cut->FlushedAll());
}
