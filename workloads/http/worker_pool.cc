#include "workloads/http/worker_pool.h"

#include <thread>
#include <utility>

namespace torpor::workloads::http {

WorkerPool::WorkerPool(size_t threads_max, size_t queued_jobs_max)
    : threads_max_(threads_max), queued_jobs_max_(queued_jobs_max) {}

bool WorkerPool::Submit(std::function<void()> job) {
  const std::lock_guard lock(mu_);
  if (jobs_.size() >= queued_jobs_max_) return false;
  jobs_.push_back(std::move(job));
  if (jobs_.size() > idle_ && threads_ < threads_max_) {
    ++threads_;
    std::thread([this] { Work(); }).detach();
  }
  wake_.notify_one();
  return true;
}

void WorkerPool::Work() {
  std::unique_lock lock(mu_);
  while (true) {
    ++idle_;
    wake_.wait(lock, [this] { return !jobs_.empty(); });
    --idle_;
    const std::function<void()> job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    job();
    lock.lock();
  }
}

}  // namespace torpor::workloads::http
