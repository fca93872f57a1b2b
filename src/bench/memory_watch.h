#pragma once
// What the kernel charges to actors: reclaim failures and kills at the memory limit, and file
// cache.

#include <atomic>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "base/sync.h"
#include "base/time.h"
#include "bench/recorder.h"

namespace torpor::bench {

// One look at the memory group of an actor.
struct MemoryCharge {
  bool exists = false;
  int64_t limit_hits = 0;  // reclaims at the limit that failed
  int64_t oom_kills = 0;
  int64_t file_cache = 0;  // bytes of files; the guest's own memory, a shared file, is not in it
};

// `memory_root` is the mount point of the memory hierarchy (v1) or of v2. The group of the actor is
// looked for below it.
std::string FindMemoryGroup(const std::string& memory_root, const std::string& actor_uid);
MemoryCharge ReadMemoryCharge(const std::string& group);
// Of this machine.
std::string MemoryRoot();

// Looks at the group of every actor in short intervals while it hibernates, because the group goes
// with its sandbox. Thread-safe.
class MemoryWatch {
 public:
  explicit MemoryWatch(std::string memory_root = MemoryRoot());
  ~MemoryWatch();

  void BeforeHibernation(const std::string& uid) EXCLUDES(mu_);
  void AfterHibernation(const std::string& uid) EXCLUDES(mu_);
  // An awake actor.
  void AddResumed(const std::string& uid) EXCLUDES(mu_);
  // Adds what was seen; nothing when no hibernation was watched.
  void Report(Recorder* recorder) const EXCLUDES(mu_);

 private:
  struct Watched {
    std::string group;
    MemoryCharge before, last;
  };
  void Loop();

  const std::string root_;
  mutable Mutex mu_;
  std::map<std::string, Watched> watched_ GUARDED_BY(mu_);
  int64_t hibernations_ GUARDED_BY(mu_) = 0;
  int64_t limit_hits_ GUARDED_BY(mu_) = 0;
  int64_t oom_kills_ GUARDED_BY(mu_) = 0;
  int64_t cache_after_ GUARDED_BY(mu_) = 0;  // the most
  int64_t resumed_ GUARDED_BY(mu_) = 0;
  int64_t cache_resumed_ GUARDED_BY(mu_) = 0;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

}  // namespace torpor::bench
