#pragma once
// The page cache of image files after a restore: memory exists twice then, in the guest and as
// cached file pages. The pages go in the background, as long as the actor lives here, and files
// that were only staged for this start go with them.
//
//   ASSIGN_OR_RETURN(auto use, page_cache.Load(directory, preserve, deadline));
//   ...restore...
//   use->Loaded();        // passes now, and 0.5, 1.5 and 3 s after each other
//   use.reset();          // the actor leaves: nothing is touched any more
//
// A pass never forces I/O: dirty pages are left for the next one. It never touches another file
// than the one that was loaded (inode, mtime and size are compared), nor one that another restore
// is loading. At most kLoadersMax restores load one inode at a time: more of them only fight for
// its lock (gvisor issue 14568: 128 readers spent 77 % of the machine there).
//
// Thread-safe. Passes run in the thread that calls Run, or where RunDue is called.

#include <sys/stat.h>
#include <sys/types.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"

namespace torpor::gvisor {

// What cachestat(2) says, in pages.
struct CachedPages {
  uint64_t cached = 0;
  uint64_t dirty = 0;
  uint64_t writeback = 0;
};

enum class Eviction {
  kFinished,  // nothing is cached
  kLater,     // dropping it now would force I/O, or might
  kEvict,
};
// `pages` is empty where the kernel cannot tell (before Linux 6.5); `age` is since the file's last
// change.
Eviction DecideEviction(const std::optional<CachedPages>& pages, Duration age);

// The calls of the kernel, for tests to replace.
class FileCache {
 public:
  virtual ~FileCache() = default;
  virtual std::optional<CachedPages> Query(int fd) = 0;
  virtual void Drop(int fd) = 0;  // POSIX_FADV_DONTNEED over the whole file
  static FileCache* Real();
};

// Starts reading a file into the page cache. Its pages are charged to us, not to the sandbox that
// reads them later.
void ReadAhead(const std::string& path);

class PageCache {
 public:
  static constexpr int kLoadersMax = 12;

  explicit PageCache(Clock* clock, FileCache* files = FileCache::Real())
      : clock_(clock), files_(files) {}
  // Every Use must be gone, and Run have returned.
  ~PageCache() = default;

  // One actor's use of the image files it was restored from. Destruction ends it, waiting for a
  // pass that runs.
  class Use {
   public:
    ~Use();
    // The guest has all of it. Called once.
    void Loaded();

   private:
    friend class PageCache;
    struct File {
      std::string path;
      struct stat pin;
    };
    Use(PageCache* owner, std::string directory, bool preserve)
        : owner_(owner), directory_(std::move(directory)), preserve_(preserve) {}

    PageCache* const owner_;
    const std::string directory_;
    const bool preserve_;
    // Of the owner's lock, except while a pass runs.
    std::vector<File> files_;
    bool loading_ = true;
    size_t passes_ = 0;
    MonotonicTime due_;
  };

  // Before the files in `directory` are read. Waits for other restores of the same files;
  // DEADLINE_EXCEEDED. With `preserve` the files themselves stay as they are.
  StatusOr<std::unique_ptr<Use>> Load(const std::string& directory, bool preserve,
                                      MonotonicTime deadline) EXCLUDES(mu_);

  // Runs every pass that is due; when the next one is, if any.
  std::optional<MonotonicTime> RunDue() EXCLUDES(mu_);
  // Runs passes until Stop.
  void Run() EXCLUDES(mu_);
  void Stop() EXCLUDES(mu_);

 private:
  using Inode = std::pair<dev_t, ino_t>;

  Use* NextDueLocked(MonotonicTime now) REQUIRES(mu_);
  std::optional<MonotonicTime> NextTimeLocked() const REQUIRES(mu_);
  bool MayLoadLocked(const Use& use) const REQUIRES(mu_);
  void EndLoadLocked(const Use& use) REQUIRES(mu_);
  void Pass(Use* use) EXCLUDES(mu_);
  bool FileIsDone(const Use& use, const Use::File& file, bool last) EXCLUDES(mu_);

  Clock* const clock_;
  FileCache* const files_;
  Mutex mu_;
  CondVar changed_;
  std::set<Use*> uses_ GUARDED_BY(mu_);           // loaded, with passes to come
  std::map<Inode, int> loaders_ GUARDED_BY(mu_);  // restores that read it now
  Use* running_ GUARDED_BY(mu_) = nullptr;
  bool stopping_ GUARDED_BY(mu_) = false;
};

}  // namespace torpor::gvisor
