#pragma once
// Keeps what the router tells the control plane about actors.

#include <string>
#include <vector>

#include "base/sync.h"
#include "router/idle/activity.h"

namespace torpor::router {

// Thread-safe.
class FakeReporter : public ActivityReporter {
 public:
  void Report(const torpor::v1::ReportActivityRequest& request) override EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    reports_.push_back(request);
    changed_.SignalAll();
  }
  void WishIdle(const std::string& uid, int64_t generation, bool durable) override EXCLUDES(mu_) {
    Add(uid + "." + std::to_string(generation) + (durable ? " suspend" : " pause"));
  }
  void WishAwake(const std::string& uid, int64_t generation, Duration duration) override
      EXCLUDES(mu_) {
    auto seconds = std::chrono::duration_cast<std::chrono::seconds>(duration).count();
    Add(uid + "." + std::to_string(generation) + " awake " + std::to_string(seconds));
  }

  // The first `n` wishes; fewer when they do not come.
  std::vector<std::string> WaitForWishes(size_t n) EXCLUDES(mu_) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    MutexLock lock(&mu_);
    while (wishes_.size() < n && changed_.WaitUntil(&mu_, deadline)) {
    }
    return wishes_;
  }
  std::vector<torpor::v1::ReportActivityRequest> WaitForReports(size_t n) EXCLUDES(mu_) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    MutexLock lock(&mu_);
    while (reports_.size() < n && changed_.WaitUntil(&mu_, deadline)) {
    }
    return reports_;
  }

 private:
  void Add(std::string wish) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    wishes_.push_back(std::move(wish));
    changed_.SignalAll();
  }

  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> wishes_ GUARDED_BY(mu_);
  std::vector<torpor::v1::ReportActivityRequest> reports_ GUARDED_BY(mu_);
};

}  // namespace torpor::router
