#pragma once
// The children of this process that somebody waits for. Internal to os/process: the one place where
// Spawn, Wait and the Reaper meet, so that a status is collected once and reaches who wants it.

#include <signal.h>

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <thread>

#include "base/sync.h"
#include "base/time.h"
#include "os/process/process.h"

namespace torpor::os {

struct ChildExit {
  std::optional<ExitStatus> status;  // guarded by Children::mu
};

struct WatchState {
  std::function<void(ExitStatus)> on_exit;  // const
  // Guarded by Children::mu.
  std::optional<ExitStatus> status;
  bool cancelled = false;
  bool calling = false;
  std::thread::id caller;
};

// Process-wide, like the children themselves.
struct Children {
  static Children& Get();

  // Held while a process is started or collected: a pid that was just returned by posix_spawn
  // cannot be collected and reused before its pidfd is open.
  Mutex mu;
  CondVar changed;
  bool reaper_active GUARDED_BY(mu) = false;
  std::map<pid_t, std::shared_ptr<ChildExit>> spawned GUARDED_BY(mu);
  std::multimap<pid_t, std::shared_ptr<WatchState>> watched GUARDED_BY(mu);
  std::multiset<pid_t> held GUARDED_BY(mu);  // not to be collected yet
  // Collected without anybody waiting: a sentry may end before its starter has told us its pid.
  struct Recent {
    pid_t pid;
    MonotonicTime time;
    ExitStatus status;
  };
  std::deque<Recent> recent GUARDED_BY(mu);
};

// From the fields of waitid(2).
ExitStatus ExitStatusOf(const siginfo_t& info);

}  // namespace torpor::os
