#pragma once
// The phases of a wake, which arrive a little after the wake itself.

#include <functional>
#include <vector>

#include "base/sync.h"
#include "torpor/v1/extensions.pb.h"

namespace torpor::router {

enum class WakeRole { kNone, kJoined, kTriggered };

// Thread-safe. Filled in once; empty when the phases could not be had.
class WakeReport {
 public:
  void Set(std::vector<torpor::v1::Phase> phases) EXCLUDES(mu_) {
    std::function<void()> then;
    {
      MutexLock lock(&mu_);
      phases_ = std::move(phases);
      ready_ = true;
      then = std::move(then_);
    }
    if (then) then();
  }
  bool ready() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return ready_;
  }
  std::vector<torpor::v1::Phase> phases() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return phases_;
  }
  // `then` runs once, now or in the thread of Set. One at a time.
  void WhenReady(std::function<void()> then) EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      if (!ready_) {
        then_ = std::move(then);
        return;
      }
    }
    then();
  }

 private:
  mutable Mutex mu_;
  bool ready_ GUARDED_BY(mu_) = false;
  std::vector<torpor::v1::Phase> phases_ GUARDED_BY(mu_);
  std::function<void()> then_ GUARDED_BY(mu_);
};

}  // namespace torpor::router
