#include "snapshot/transfer/transfer.h"

#include <sched.h>

#include <thread>

#include "model/reasons.h"

namespace torpor::snapshot {
Status Transfer::Check() const {
  if (cancelled_) return Fail(reasons::kCancelled, "the operation was cancelled");
  if (stopped_) return Fail(reasons::kCancelled, "another file of the operation failed");
  if (clock_->Now() >= deadline_) {
    return Fail(reasons::kDeadlineExceeded, "the operation took longer than its timeout");
  }
  return OkStatus();
}

Status RunLegs(size_t count, size_t threads_max, Transfer* transfer,
               const std::function<Status(size_t index)>& work) {
  std::atomic<size_t> next{0};
  Mutex mu;
  Status first;
  auto run = [&] {
    for (size_t i = next++; i < count; i = next++) {
      Status status = work(i);
      if (status.ok()) continue;
      MutexLock lock(&mu);
      if (first.ok()) first = std::move(status);
      // Only now: what the others say because of it must come second.
      transfer->Stop();
      return;
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 1; i < std::min(count, threads_max); ++i) threads.emplace_back(run);
  run();
  for (std::thread& thread : threads) thread.join();
  return first;
}

size_t Cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (sched_getaffinity(0, sizeof set, &set) != 0) return 1;
  return std::max<size_t>(1, static_cast<size_t>(CPU_COUNT(&set)));
}

}  // namespace torpor::snapshot
