#pragma once
// A bounded number of threads that run queued functions in order of arrival.

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "base/sync.h"

namespace torpor {

// Thread-safe. The destructor runs what is queued, then joins.
class ThreadPool {
 public:
  explicit ThreadPool(size_t threads_max);
  ~ThreadPool();
  // Threads are made when needed, up to the maximum. Never blocks.
  void Run(std::function<void()> work) EXCLUDES(mu_);

 private:
  void Loop();

  const size_t threads_max_;
  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> queue_ GUARDED_BY(mu_);
  size_t idle_ GUARDED_BY(mu_) = 0;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<std::thread> threads_ GUARDED_BY(mu_);
};

}  // namespace torpor
