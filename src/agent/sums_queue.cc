#include "agent/sums_queue.h"

#include <algorithm>

#include "base/log.h"

namespace torpor::agent {

void SumsQueue::Add(const std::string& uid, const std::string& name) {
  MutexLock lock(&mu_);
  const std::pair<std::string, std::string> item(uid, name);
  if (std::find(queue_.begin(), queue_.end(), item) == queue_.end()) queue_.push_back(item);
}

bool SumsQueue::empty() const {
  MutexLock lock(&mu_);
  return queue_.empty();
}

void SumsQueue::Work(const std::function<bool()>& stop) {
  for (;;) {
    std::pair<std::string, std::string> item;
    {
      MutexLock lock(&mu_);
      if (queue_.empty()) return;
      item = queue_.front();
    }
    auto sums = snapshots_->Sum(item.first, item.second, stop);
    if (sums.status().code() == Code::kCancelled) return;
    Status status =
        sums.ok() ? snapshots_->WriteSums(item.first, item.second, *sums) : sums.status();
    // Pruned meanwhile is the usual end of a pause that a wake followed.
    if (!status.ok() && status.code() != Code::kNotFound) {
      LogWarning("a local generation has no sums and will not survive a reboot",
                 {{"actor", item.first}, {"error", std::string(status.message())}});
    }
    MutexLock lock(&mu_);
    if (!queue_.empty() && queue_.front() == item) queue_.pop_front();
  }
}

}  // namespace torpor::agent
