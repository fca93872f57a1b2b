#include "worker/priority_semaphore.h"

#include <algorithm>

#include "model/reasons.h"

namespace torpor::worker {

StatusOr<PrioritySemaphore::Permit> PrioritySemaphore::Acquire(Priority priority,
                                                               MonotonicTime deadline) {
  MutexLock lock(&mu_);
  Waiter self = {.priority = priority, .since = clock_->Now()};
  waiters_.push_back(&self);
  Choose();
  while (!self.chosen) {
    if (!changed_.WaitUntil(&mu_, deadline) && !self.chosen && clock_->Now() >= deadline) {
      waiters_.remove(&self);
      return Fail(reasons::kDeadlineExceeded,
                  "other actors of this worker are restored and captured first; fewer actors or "
                  "more processors would help");
    }
  }
  return Permit(this);
}

int PrioritySemaphore::waiting() const {
  MutexLock lock(&mu_);
  return static_cast<int>(waiters_.size());
}

void PrioritySemaphore::Release() {
  MutexLock lock(&mu_);
  ++free_;
  Choose();
}

void PrioritySemaphore::Choose() {
  while (free_ > 0 && !waiters_.empty()) {
    auto next = waiters_.begin();
    if (clock_->Now() - (*next)->since < starve_after_) {
      // The first of the equals is the one that came first.
      next = std::min_element(
          waiters_.begin(), waiters_.end(),
          [](const Waiter* a, const Waiter* b) { return a->priority < b->priority; });
    }
    (*next)->chosen = true;
    waiters_.erase(next);
    --free_;
    changed_.SignalAll();
  }
}

}  // namespace torpor::worker
