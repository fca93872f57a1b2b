#pragma once
// Lets a test strike at a chosen journal append of an agent, on the thread of the operation.

#include <functional>

#include "agent/journal.h"
#include "base/sync.h"

namespace torpor::agent {

class StrikePoint : public JournalObserver {
 public:
  // Counted from Arm: 2n is before the nth record, 2n + 1 after it.
  explicit StrikePoint(int at) : at_(at) {}
  void BeforeAppend(const torpor::v1::JournalRecord&) override { Pass(); }
  void AfterAppend(const torpor::v1::JournalRecord&) override { Pass(); }
  void Arm(std::function<void()> strike) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    strike_ = std::move(strike);
  }
  bool struck() const EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return struck_;
  }

 private:
  void Pass() EXCLUDES(mu_) {
    std::function<void()> strike;
    {
      MutexLock lock(&mu_);
      if (!strike_ || count_++ != at_) return;
      struck_ = true;
      strike = strike_;
    }
    strike();
  }

  const int at_;
  mutable Mutex mu_;
  int count_ GUARDED_BY(mu_) = 0;
  bool struck_ GUARDED_BY(mu_) = false;
  std::function<void()> strike_ GUARDED_BY(mu_);
};

}  // namespace torpor::agent
