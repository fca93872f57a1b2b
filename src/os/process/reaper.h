#pragma once
// Collects every child of this process at once, also those re-parented to it.
//
// A worker's sandboxes end up as its children: `runsc run -detach` exits and leaves the sentry and
// the gofer behind, and a zombie gofer makes a later runsc command wait for seconds. The reaper
// makes the process a child subreaper (PR_SET_CHILD_SUBREAPER) and one thread waits for any child.
//
// There can be one Reaper in a process, because the children belong to the process: Start fails
// with ALREADY_EXISTS otherwise. While it lives, Process::Wait and RunCommand (process.h) get their
// statuses from it. Thread-safe. Destruction stops collecting; nothing is killed.

#include <sys/types.h>

#include <functional>
#include <memory>

#include "base/status.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "os/process/process.h"

namespace torpor::os {

struct WatchState;

class Reaper {
 public:
  static StatusOr<std::unique_ptr<Reaper>> Start();
  ~Reaper();
  Reaper(const Reaper&) = delete;
  Reaper& operator=(const Reaper&) = delete;

  // A process that somebody else started and that is or becomes our child, such as a sentry known
  // from its pid file.
  class Watched {
   public:
    ~Watched();  // on_exit does not run after this returned
    pid_t pid() const { return pid_; }
    // Refers to the process that was watched, whatever becomes of the pid; -1 when it had already
    // been collected when Watch was called.
    int pidfd() const { return pidfd_.get(); }
    bool ended() const;
    StatusOr<ExitStatus> Wait(MonotonicTime deadline);
    Status Signal(int signal) const;  // OK when it has ended
    // While the result lives the process is not collected, so its pid means it and no other; null
    // when it has been collected. Short: every child that ends meanwhile waits.
    std::shared_ptr<void> HoldPid() const;

   private:
    friend class Reaper;
    Watched() = default;
    pid_t pid_ = -1;
    UniqueFd pidfd_;
    std::shared_ptr<WatchState> state_;
  };

  // `on_exit` runs once, on the reaper's thread, and must not block or call the reaper; if the
  // process was collected since `not_before` (the time its starter was started) it runs before
  // Watch returns. NOT_FOUND when there is no such process.
  StatusOr<std::unique_ptr<Watched>> Watch(pid_t pid, MonotonicTime not_before,
                                           std::function<void(ExitStatus)> on_exit);

 private:
  struct Loop;
  Reaper() = default;
  std::unique_ptr<Loop> loop_;
};

}  // namespace torpor::os
