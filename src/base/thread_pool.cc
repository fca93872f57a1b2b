#include "base/thread_pool.h"

namespace torpor {

ThreadPool::ThreadPool(size_t threads_max) : threads_max_(threads_max) {}

ThreadPool::~ThreadPool() {
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

void ThreadPool::Run(std::function<void()> work) {
  MutexLock lock(&mu_);
  queue_.push_back(std::move(work));
  if (idle_ < queue_.size() && threads_.size() < threads_max_) {
    threads_.emplace_back([this] { Loop(); });
  }
  changed_.Signal();
}

void ThreadPool::Loop() {
  while (true) {
    std::function<void()> work;
    {
      MutexLock lock(&mu_);
      ++idle_;
      while (queue_.empty() && !stopping_) changed_.Wait(&mu_);
      --idle_;
      if (queue_.empty()) return;
      work = std::move(queue_.front());
      queue_.pop_front();
    }
    work();
  }
}

}  // namespace torpor
