#include "worker/priority_semaphore.h"

#include <errno.h>
#include <poll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "model/reasons.h"

namespace torpor::worker {

StatusOr<PrioritySemaphore::Permit> PrioritySemaphore::Acquire(Priority priority,
                                                               MonotonicTime deadline,
                                                               int cancel_fd) {
  Waiter self = {.priority = priority, .since = clock_->Now()};
  ASSIGN_OR_RETURN(bool chosen, Join(&self));
  if (chosen) return Permit(this, priority);
  bool late = false;
  std::array<pollfd, 2> fds = {{{self.turn.get(), POLLIN, 0}, {cancel_fd, POLLIN, 0}}};
  do {
    using std::chrono::milliseconds;
    const MonotonicTime now = clock_->Now();
    late = now >= deadline;
    // In steps, so that a far deadline needs no care for what poll can count.
    auto left =
        std::clamp(std::chrono::ceil<milliseconds>(late ? Duration::zero() : deadline - now),
                   milliseconds(0), milliseconds(1000));
    (void)poll(fds.data(), fds.size(), static_cast<int>(left.count()));
  } while (!late && fds[0].revents == 0 && fds[1].revents == 0);
  if (Leave(&self)) return Permit(this, priority);
  if (!late) return Fail(reasons::kCancelled, "called off before its turn");
  return Fail(reasons::kDeadlineExceeded,
              "other actors of this worker are restored and captured first; fewer actors or more "
              "processors would help");
}

StatusOr<bool> PrioritySemaphore::Join(Waiter* self) {
  MutexLock lock(&mu_);
  waiters_.push_back(self);
  Choose();
  if (self->chosen) return true;
  self->turn = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (self->turn.valid()) return false;
  waiters_.remove(self);
  return ErrnoStatus(errno, "eventfd");
}

bool PrioritySemaphore::Leave(Waiter* self) {
  MutexLock lock(&mu_);
  if (!self->chosen) waiters_.remove(self);
  return self->chosen;
}

int PrioritySemaphore::waiting() const {
  MutexLock lock(&mu_);
  return static_cast<int>(waiters_.size());
}

void PrioritySemaphore::Release(Priority priority) {
  MutexLock lock(&mu_);
  ++free_;
  if (priority != Priority::kRestore) ++free_background_;
  Choose();
}

PrioritySemaphore::Waiter* PrioritySemaphore::Next() const {
  if (free_ == 0) return nullptr;
  Waiter* best = nullptr;
  for (Waiter* waiter : waiters_) {
    if (waiter->priority != Priority::kRestore && free_background_ == 0) continue;
    if (best == nullptr) {
      best = waiter;
      if (clock_->Now() - best->since >= starve_after_) break;
    } else if (waiter->priority < best->priority) {
      best = waiter;  // the first of the equals is the one that came first
    }
  }
  return best;
}

void PrioritySemaphore::Choose() {
  while (Waiter* next = Next()) {
    next->chosen = true;
    waiters_.remove(next);
    --free_;
    if (next->priority != Priority::kRestore) --free_background_;
    if (next->turn.valid()) (void)eventfd_write(next->turn.get(), 1);
  }
}

}  // namespace torpor::worker
