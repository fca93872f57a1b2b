#pragma once
// Keeps what a worker reports of guests that ended. Thread-safe.

#include <vector>

#include "base/sync.h"
#include "base/time.h"
#include "worker/exit_reporter.h"

namespace torpor::worker {

class FakeReporter : public ExitReporter {
 public:
  void Report(torpor::v1::ExitReport report) override EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    reports_.push_back(std::move(report));
    changed_.SignalAll();
  }
  // The first report; an empty one when there is none within a minute.
  torpor::v1::ExitReport WaitForOne() EXCLUDES(mu_) {
    const MonotonicTime deadline = Clock::Real()->Now() + std::chrono::seconds(60);
    MutexLock lock(&mu_);
    while (reports_.empty() && changed_.WaitUntil(&mu_, deadline)) {
    }
    return reports_.empty() ? torpor::v1::ExitReport() : reports_[0];
  }
  size_t count() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    return reports_.size();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<torpor::v1::ExitReport> reports_ GUARDED_BY(mu_);
};

}  // namespace torpor::worker
