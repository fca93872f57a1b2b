#pragma once
// LOCAL generations whose sums are still to be computed: after the acknowledgement, never before an
// answer. Thread-safe; one thread works it off.

#include <deque>
#include <functional>
#include <string>
#include <utility>

#include "agent/local_snapshots.h"
#include "base/sync.h"

namespace torpor::agent {

class SumsQueue {
 public:
  explicit SumsQueue(LocalSnapshots* snapshots) : snapshots_(snapshots) {}

  void Add(const std::string& uid, const std::string& name) EXCLUDES(mu_);
  bool empty() const EXCLUDES(mu_);
  // Writes sums.json of everything queued, oldest first; what is gone meanwhile is forgotten. Ends
  // when `stop` says so; the one under way is begun anew next time.
  void Work(const std::function<bool()>& stop) EXCLUDES(mu_);

 private:
  LocalSnapshots* const snapshots_;
  mutable Mutex mu_;
  std::deque<std::pair<std::string, std::string>> queue_ GUARDED_BY(mu_);
};

}  // namespace torpor::agent
