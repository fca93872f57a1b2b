#include "runtime/gvisor/page_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>

#include "base/log.h"
#include "base/unique_fd.h"
#include "model/reasons.h"
#include "runtime/gvisor/staged.h"

namespace torpor::gvisor {
namespace {

using std::chrono::milliseconds;

// Between passes.
constexpr Duration kDelays[] = {milliseconds(500), milliseconds(1500), milliseconds(3000)};
constexpr Duration kOldEnough = std::chrono::seconds(5);
constexpr long kSysCachestat = 451;  // Linux 6.5; the headers of Debian 12 do not know it
// One call reads no more than the device's largest request.
constexpr off_t kReadAheadStep = 128 << 10;

class RealFileCache : public FileCache {
 public:
  std::optional<CachedPages> Query(int fd) override {
    struct {
      uint64_t offset = 0, length = 0;  // 0 = to the end
    } range;
    struct {
      uint64_t cached = 0, dirty = 0, writeback = 0, evicted = 0, recently_evicted = 0;
    } stat;
    if (syscall(kSysCachestat, fd, &range, &stat, 0) != 0) return std::nullopt;
    return CachedPages{stat.cached, stat.dirty, stat.writeback};
  }
  void Drop(int fd) override { (void)posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED); }
};

bool EndsWith(std::string_view name, std::string_view end) {
  return name.size() > end.size() && name.substr(name.size() - end.size()) == end;
}

bool IsSame(const struct stat& a, const struct stat& b) {
  return a.st_dev == b.st_dev && a.st_ino == b.st_ino && a.st_size == b.st_size &&
         a.st_mtim.tv_sec == b.st_mtim.tv_sec && a.st_mtim.tv_nsec == b.st_mtim.tv_nsec;
}

Duration AgeOf(const struct stat& st, WallTime now) {
  return now - WallTime(std::chrono::seconds(st.st_mtim.tv_sec) +
                        std::chrono::nanoseconds(st.st_mtim.tv_nsec));
}

// Regular image files of a directory: path and what fstat says. One of several names of an inode.
std::vector<std::pair<std::string, struct stat>> ImagesIn(const std::string& directory) {
  std::vector<std::pair<std::string, struct stat>> images;
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(directory.c_str()), closedir);
  if (dir == nullptr) return images;
  std::set<std::pair<dev_t, ino_t>> seen;
  while (dirent* entry = readdir(dir.get())) {
    std::string name = entry->d_name;
    struct stat st;
    if (!EndsWith(name, ".img") && !EndsWith(name, ".tar")) continue;
    if (fstatat(dirfd(dir.get()), name.c_str(), &st, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (!S_ISREG(st.st_mode) || !seen.emplace(st.st_dev, st.st_ino).second) continue;
    images.emplace_back(directory + "/" + name, st);
  }
  std::sort(images.begin(), images.end(),
            [](const auto& a, const auto& b) { return a.first < b.first; });
  return images;
}

}  // namespace

FileCache* FileCache::Real() {
  static RealFileCache real;
  return &real;
}

Eviction DecideEviction(const std::optional<CachedPages>& pages, Duration age) {
  if (!pages.has_value()) return age >= kOldEnough ? Eviction::kEvict : Eviction::kLater;
  if (pages->cached == 0) return Eviction::kFinished;
  if (pages->dirty > 0 || pages->writeback > 0) return Eviction::kLater;
  return Eviction::kEvict;
}

void ReadAhead(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  struct stat st;
  if (!fd.valid() || fstat(fd.get(), &st) != 0) return;
  for (off_t at = 0; at < st.st_size; at += kReadAheadStep) {
    (void)posix_fadvise(fd.get(), at, kReadAheadStep, POSIX_FADV_WILLNEED);
  }
}

// ---- Loading ----

bool PageCache::MayLoadLocked(const Use& use) const {
  for (const Use::File& file : use.files_) {
    auto it = loaders_.find({file.pin.st_dev, file.pin.st_ino});
    if (it != loaders_.end() && it->second >= kLoadersMax) return false;
  }
  return true;
}

StatusOr<std::unique_ptr<PageCache::Use>> PageCache::Load(const std::string& directory,
                                                          bool preserve, MonotonicTime deadline) {
  std::unique_ptr<Use> use(new Use(this, directory, preserve));
  for (auto& [path, pin] : ImagesIn(directory)) use->files_.push_back({path, pin});
  MutexLock lock(&mu_);
  while (!MayLoadLocked(*use)) {
    if (!changed_.WaitUntil(&mu_, deadline) && clock_->Now() >= deadline) {
      use->files_.clear();  // nothing was counted for it
      return Fail(reasons::kDeadlineExceeded, "too many restores of one image at a time");
    }
  }
  for (const Use::File& file : use->files_) ++loaders_[{file.pin.st_dev, file.pin.st_ino}];
  return use;
}

void PageCache::EndLoadLocked(const Use& use) {
  for (const Use::File& file : use.files_) {
    auto it = loaders_.find({file.pin.st_dev, file.pin.st_ino});
    if (--it->second == 0) loaders_.erase(it);
  }
  changed_.SignalAll();
}

void PageCache::Use::Loaded() {
  MutexLock lock(&owner_->mu_);
  owner_->EndLoadLocked(*this);
  loading_ = false;
  due_ = owner_->clock_->Now();
  owner_->uses_.insert(this);
}

PageCache::Use::~Use() {
  MutexLock lock(&owner_->mu_);
  if (loading_) owner_->EndLoadLocked(*this);
  owner_->uses_.erase(this);
  while (owner_->running_ == this) owner_->changed_.Wait(&owner_->mu_);
}

// ---- Passes ----

PageCache::Use* PageCache::NextDueLocked(MonotonicTime now) {
  auto it =
      std::find_if(uses_.begin(), uses_.end(), [&](const Use* use) { return use->due_ <= now; });
  return it == uses_.end() ? nullptr : *it;
}

std::optional<MonotonicTime> PageCache::NextTimeLocked() const {
  auto first = std::min_element(uses_.begin(), uses_.end(),
                                [](const Use* a, const Use* b) { return a->due_ < b->due_; });
  if (first == uses_.end()) return std::nullopt;
  return (*first)->due_;
}

std::optional<MonotonicTime> PageCache::RunDue() {
  for (;;) {
    Use* use = nullptr;
    {
      MutexLock lock(&mu_);
      use = NextDueLocked(clock_->Now());
      if (use == nullptr) return NextTimeLocked();
      running_ = use;
    }
    Pass(use);
    MutexLock lock(&mu_);
    running_ = nullptr;
    if (use->files_.empty() || use->passes_ == std::size(kDelays)) {
      uses_.erase(use);
    } else {
      use->due_ = clock_->Now() + kDelays[use->passes_];
    }
    ++use->passes_;
    changed_.SignalAll();
  }
}

void PageCache::Pass(Use* use) {
  const bool last = use->passes_ == std::size(kDelays);
  std::erase_if(use->files_, [&](const Use::File& file) { return FileIsDone(*use, file, last); });
}

bool PageCache::FileIsDone(const Use& use, const Use::File& file, bool last) {
  UniqueFd fd(open(file.path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat st;
  if (!fd.valid() || fstat(fd.get(), &st) != 0) return true;
  if (!IsSame(st, file.pin)) return true;  // a newer file, whose cache is somebody's
  const Staged staged = DecideStaged(use.preserve_, st.st_nlink, st.st_size);
  if (staged == Staged::kTruncate) {
    RemoveStaged(file.path, st, staged);  // its pages go with it, the dirty ones unwritten
    return true;
  }
  {
    MutexLock lock(&mu_);
    if (loaders_.count({st.st_dev, st.st_ino}) != 0 && !last) return false;
  }
  Eviction eviction = DecideEviction(files_->Query(fd.get()), AgeOf(st, clock_->WallNow()));
  if (eviction == Eviction::kEvict) {
    MutexLock lock(&mu_);
    // Looked at again with nobody able to begin: a load in between would lose its pages.
    if (loaders_.count({st.st_dev, st.st_ino}) == 0) files_->Drop(fd.get());
  }
  if (eviction != Eviction::kFinished && !last) return false;
  RemoveStaged(file.path, st, staged);
  return true;
}

void PageCache::Run() {
  for (;;) {
    std::optional<MonotonicTime> next = RunDue();
    MutexLock lock(&mu_);
    while (!stopping_ && NextDueLocked(clock_->Now()) == nullptr) {
      next = NextTimeLocked();
      if (next.has_value()) {
        changed_.WaitUntil(&mu_, *next);
      } else {
        changed_.Wait(&mu_);
      }
    }
    if (stopping_) return;
  }
}

void PageCache::Stop() {
  MutexLock lock(&mu_);
  stopping_ = true;
  changed_.SignalAll();
}

}  // namespace torpor::gvisor
