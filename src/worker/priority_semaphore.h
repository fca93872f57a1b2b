#pragma once
// How many sandboxes read or write their memory images at once, and who is next.
//
// Restores and captures share processors and memory. A wake has somebody who waits for it and goes
// first; then captures; then sandboxes made in advance, which only wait for a moment when nobody
// else wants a permit. An image that is being written is not stopped for a wake, so the two latter
// never hold all permits: one is left for the wake. Who has waited for `starve_after` goes before
// all that came later, so nobody waits for ever.
//
// Thread-safe. A permit is given back by its destruction.

#include <list>
#include <utility>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace torpor::worker {

// In their order.
enum class Priority { kRestore, kCapture, kPrepare };

class PrioritySemaphore {
 public:
  class Permit {
   public:
    Permit() = default;  // of nothing
    Permit(PrioritySemaphore* owner, Priority priority) : owner_(owner), priority_(priority) {}
    Permit(Permit&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), priority_(other.priority_) {}
    Permit& operator=(Permit&& other) noexcept {
      std::swap(owner_, other.owner_);
      std::swap(priority_, other.priority_);
      return *this;
    }
    ~Permit() {
      if (owner_ != nullptr) owner_->Release(priority_);
    }

   private:
    PrioritySemaphore* owner_ = nullptr;
    Priority priority_ = Priority::kRestore;
  };

  // `permits` >= 1, of which all but restores hold at most `background` (>= 1) at once. The clock
  // outlives the semaphore.
  PrioritySemaphore(int permits, int background, Duration starve_after, Clock* clock)
      : starve_after_(starve_after), clock_(clock), free_(permits), free_background_(background) {}

  // Blocks; DEADLINE_EXCEEDED when no turn came until `deadline`, CANCELLED when `cancel_fd` (-1 =
  // none) became readable first.
  StatusOr<Permit> Acquire(Priority priority, MonotonicTime deadline, int cancel_fd = -1)
      EXCLUDES(mu_);

  int waiting() const EXCLUDES(mu_);

 private:
  struct Waiter {
    Priority priority;
    MonotonicTime since;
    bool chosen = false;
    UniqueFd turn;  // readable once chosen; only of who has to wait
  };

  // Joins the queue; true when it is its turn at once.
  StatusOr<bool> Join(Waiter* self) EXCLUDES(mu_);
  // Leaves the queue; true when its turn had come after all.
  bool Leave(Waiter* self) EXCLUDES(mu_);

  void Release(Priority priority) EXCLUDES(mu_);
  // Gives free permits to the waiters whose turn it is.
  void Choose() REQUIRES(mu_);
  // Who is next; null when nobody may be.
  Waiter* Next() const REQUIRES(mu_);

  const Duration starve_after_;
  Clock* const clock_;
  mutable Mutex mu_;
  int free_ GUARDED_BY(mu_);
  int free_background_ GUARDED_BY(mu_);
  std::list<Waiter*> waiters_ GUARDED_BY(mu_);  // in the order of their arrival; not the chosen
};

}  // namespace torpor::worker
