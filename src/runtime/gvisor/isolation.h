#pragma once
// The sentry's cgroup during a capture.
//
// The sentry writes the image, about as large as the guest's memory, and the page cache of a
// buffered write is charged to the group of the writer: guest and cache together exceed the limit.
// So for the time of a capture the sentry lives in its leaf's sibling, which has no limit, while
// what is charged already stays with the leaf.
//
// Two rules. Isolation that fails is no error: the capture goes on without it. And a live sandbox
// never stays without its limit: on every way out the sentry is proven to be back in its leaf, or
// it is killed.
//
// One object per sandbox; thread-compatible, like the calls for one sandbox.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "os/cgroup/cgroup_tree.h"
#include "runtime/gvisor/leftovers.h"

namespace torpor::gvisor {

enum class IsolationState {
  kIdle,       // no capture
  kFound,      // the sentry is known
  kPrepared,   // an empty sibling exists
  kIsolated,   // the sentry is in it
  kPlain,      // not isolated, for a reason that was logged
  kCapturing,  // the checkpoint command runs
  kReturning,  // the guest shall go on: the sentry must go back
  kReturned,   // it is back, but does it live?
  kMustKill,   // it cannot be given its limit again, or does not answer
  kTeardown,   // the sandbox ends
  kRemoving,   // it has ended; the sibling goes
  kDone,       // nothing is left
  kError,      // a process survives its SIGKILL; it is frozen
};

enum class IsolationEvent {
  kSentryFound,
  kSentryUnclear,  // none, several, or another one than the pid file says
  kSiblingReady,
  kSiblingRefused,  // it holds a process, or cannot be made
  kMoved,
  kNotMoved,  // not in the leaf, or the write failed
  kSentryDead,
  kCaptureBegins,
  kSavedToEnd,
  kSavedToGoOn,
  kNotSaved,
  kBack,   // in the leaf, gone, or never moved
  kStuck,  // alive and not in the leaf
  kProven,
  kNotProven,
  kKilled,
  kTornDown,
  kRemoved,
  kSurvived,
};

// The table; empty where an event cannot happen.
std::optional<IsolationState> NextIsolationState(IsolationState state, IsolationEvent event);
std::string_view Name(IsolationState state);

// The sandbox's sentry, as isolation needs it.
class IsolatedSentry {
 public:
  virtual ~IsolatedSentry() = default;
  virtual pid_t pid() const = 0;
  // While the result lives the pid means this process; null when it has been collected.
  virtual std::shared_ptr<void> HoldPid() const = 0;
  virtual bool Ended() const = 0;
  virtual bool ProveAlive() = 0;  // the guest's control answers; bounded
  virtual Status Kill() = 0;      // returns when it has ended; bounded
};

class CaptureIsolation {
 public:
  // Without a cgroup tree every capture is plain. `sentry` and `cgroups` outlive this.
  // `program_of` is argv[0] of a process.
  CaptureIsolation(os::CgroupTree* cgroups, std::string leaf, IsolatedSentry* sentry,
                   std::function<std::string(pid_t)> program_of = ProgramOf)
      : cgroups_(cgroups),
        leaf_(std::move(leaf)),
        sentry_(sentry),
        program_of_(std::move(program_of)) {}

  // Every way out of a capture runs its destructor: what was not brought to an end goes back.
  class Guard {
   public:
    explicit Guard(CaptureIsolation* isolation) : isolation_(isolation) {}
    ~Guard() {
      if (isolation_->state_ == IsolationState::kCapturing) (void)isolation_->GoOn(false);
    }
    Guard(const Guard&) = delete;
    Guard& operator=(const Guard&) = delete;

   private:
    CaptureIsolation* const isolation_;
  };

  // Before the checkpoint command. Fails only when the sentry has ended (WORKLOAD_EXITED).
  Status Begin();
  // The guest is saved and the sandbox is about to be ended by the caller.
  void SavedToEnd();
  // The guest shall go on, because it could not be saved or (`saved`) was to be left running. True
  // when it does, with its limit; false when it is dead.
  bool GoOn(bool saved);
  // After every process of the sandbox was killed. INTERNAL when one survived; it is frozen then.
  Status TornDown();

  IsolationState state() const { return state_; }
  // Of the last Begin.
  bool isolated() const { return isolated_; }

 private:
  void Advance(IsolationEvent event);
  bool SentryIsClear();
  IsolationEvent MoveToSibling();
  IsolationEvent MoveBack();
  void Warn(std::string_view what, const Status& why = OkStatus());

  os::CgroupTree* const cgroups_;
  const std::string leaf_;
  IsolatedSentry* const sentry_;
  const std::function<std::string(pid_t)> program_of_;
  IsolationState state_ = IsolationState::kIdle;
  bool isolated_ = false;
};

}  // namespace torpor::gvisor
