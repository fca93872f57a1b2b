#pragma once
// How many sandboxes read or write their memory images at once, and who is next.
//
// Restores and captures share processors and memory. With 15 actors on two cores
// (pause_density_15_actors) a wake among everybody's pauses took 7.3 times as long as alone, and in
// turns 2.8 times, while fewer cycles were done in all. A wake has somebody who waits for it and
// goes first; then captures; then sandboxes made in advance, which only wait for a moment when
// nobody else wants a permit. Who has waited for `starve_after` goes before all that came later, so
// nobody waits for ever.
//
// Thread-safe. A permit is given back by its destruction.

#include <list>
#include <utility>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"

namespace torpor::worker {

// In their order.
enum class Priority { kRestore, kCapture, kPrepare };

class PrioritySemaphore {
 public:
  class Permit {
   public:
    Permit() = default;  // of nothing
    explicit Permit(PrioritySemaphore* owner) : owner_(owner) {}
    Permit(Permit&& other) noexcept : owner_(std::exchange(other.owner_, nullptr)) {}
    Permit& operator=(Permit&& other) noexcept {
      std::swap(owner_, other.owner_);
      return *this;
    }
    ~Permit() {
      if (owner_ != nullptr) owner_->Release();
    }

   private:
    PrioritySemaphore* owner_ = nullptr;
  };

  // `permits` >= 1. The clock outlives the semaphore.
  PrioritySemaphore(int permits, Duration starve_after, Clock* clock)
      : starve_after_(starve_after), clock_(clock), free_(permits) {}

  // Blocks; DEADLINE_EXCEEDED when no turn came until `deadline`.
  StatusOr<Permit> Acquire(Priority priority, MonotonicTime deadline) EXCLUDES(mu_);

  int waiting() const EXCLUDES(mu_);

 private:
  struct Waiter {
    Priority priority;
    MonotonicTime since;
    bool chosen = false;
  };

  void Release() EXCLUDES(mu_);
  // Gives free permits to the waiters whose turn it is.
  void Choose() REQUIRES(mu_);

  const Duration starve_after_;
  Clock* const clock_;
  mutable Mutex mu_;
  CondVar changed_;
  int free_ GUARDED_BY(mu_);
  std::list<Waiter*> waiters_ GUARDED_BY(mu_);  // in the order of their arrival; not the chosen
};

}  // namespace torpor::worker
