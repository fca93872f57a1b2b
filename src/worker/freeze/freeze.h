#pragma once
// Actors whose processes stand still while nobody is connected (freeze_after). Their state stays
// RUNNING, their memory stays; the next connection thaws them, in about 2 ms.
//
// A FreezableGuest is thread-safe; a thaw blocks for as long as the kernel needs.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "os/cgroup/cgroup_tree.h"

namespace torpor::worker {

// One guest. Outlived by the tree.
class FreezableGuest {
 public:
  FreezableGuest(os::CgroupTree* cgroups, std::string leaf, Clock* clock)
      : cgroups_(cgroups), leaf_(std::move(leaf)), clock_(clock) {}

  // Before every connection, after it was counted by the door: thaws, and notes the time.
  Status Touch() EXCLUDES(mu_);
  // Thaws; not frozen again before as many Releases.
  Status Hold() EXCLUDES(mu_);
  void Release() EXCLUDES(mu_);
  // Freezes unless it is held, was touched after `untouched_since`, or `busy()`. A connection that
  // is counted while this runs waits in Touch and thaws.
  void FreezeUnlessUsed(MonotonicTime untouched_since, const std::function<bool()>& busy)
      EXCLUDES(mu_);

  MonotonicTime last_touch() const EXCLUDES(mu_);
  bool frozen() const EXCLUDES(mu_);

 private:
  Status Thaw() REQUIRES(mu_);

  os::CgroupTree* const cgroups_;
  const std::string leaf_;
  Clock* const clock_;
  mutable Mutex mu_;
  bool frozen_ GUARDED_BY(mu_) = false;
  bool impossible_ GUARDED_BY(mu_) = false;
  int held_ GUARDED_BY(mu_) = 0;
  MonotonicTime last_touch_ GUARDED_BY(mu_);
};

// Looks when a guest may have been idle for long enough: it is frozen between one and two times
// `after` after its last connection has ended. Thread-safe.
class IdleFreezer {
 public:
  explicit IdleFreezer(Clock* clock) : clock_(clock) {}
  ~IdleFreezer();
  // The thread that looks; without it only Look does.
  void Start();

  // `busy`: a connection is open or being made. `after` > 0.
  void Add(const std::string& uid, std::shared_ptr<FreezableGuest> guest, Duration after,
           std::function<bool()> busy) EXCLUDES(mu_);
  // On return the guest is not looked at any more. OK for an unknown uid.
  void Remove(const std::string& uid) EXCLUDES(mu_);
  // Freezes whoever is idle now; returns when to look again.
  MonotonicTime Look() EXCLUDES(mu_);

 private:
  struct Guest {
    std::shared_ptr<FreezableGuest> guest;
    Duration after;
    std::function<bool()> busy;
    MonotonicTime idle_since;
    MonotonicTime next_look;
  };
  void Run() EXCLUDES(mu_);
  void LookAt(Guest& guest, MonotonicTime now);

  Clock* const clock_;
  Mutex mu_;
  CondVar changed_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::map<std::string, Guest> guests_ GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace torpor::worker
