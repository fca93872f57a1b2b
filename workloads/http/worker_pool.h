#pragma once

// Threads for handlers that take long, so that the server's thread stays free for /readyz.
// Threads are started when needed and stay. Any thread may call Submit. Jobs that are running when
// the process ends are not waited for: a workload has nothing to save at its end.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>

namespace torpor::workloads::http {

class WorkerPool {
 public:
  WorkerPool(size_t threads_max, size_t queued_jobs_max);

  // False if the queue is full; the caller then sheds the request.
  bool Submit(std::function<void()> job);

 private:
  void Work();

  const size_t threads_max_;
  const size_t queued_jobs_max_;

  std::mutex mu_;
  std::condition_variable wake_;
  // Guarded by mu_.
  std::deque<std::function<void()>> jobs_;
  size_t threads_ = 0;
  size_t idle_ = 0;
};

}  // namespace torpor::workloads::http
