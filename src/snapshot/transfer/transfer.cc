#include "snapshot/transfer/transfer.h"

#include <sched.h>

#include <thread>

#include "model/reasons.h"

namespace torpor::snapshot {
namespace {

// How soon a waiting file notices that its operation was cancelled.
constexpr auto kCheckEvery = std::chrono::milliseconds(20);

}  // namespace

Status Transfer::Check() const {
  if (cancelled_) return Fail(reasons::kCancelled, "the operation was cancelled");
  if (stopped_) return Fail(reasons::kCancelled, "another file of the operation failed");
  if (clock_->Now() >= deadline_) {
    return Fail(reasons::kDeadlineExceeded, "the operation took longer than its timeout");
  }
  return OkStatus();
}

StatusOr<FileGate::Place> FileGate::Enter(Urgency urgency, const Transfer& transfer) {
  MutexLock lock(&mu_);
  const bool download = urgency == Urgency::kDownload;
  if (download) ++downloads_waiting_;
  Status status = transfer.Check();
  while (status.ok() && (free_ == 0 || (!download && downloads_waiting_ > 0))) {
    changed_.WaitUntil(&mu_, std::chrono::steady_clock::now() + kCheckEvery);
    status = transfer.Check();
  }
  if (download) --downloads_waiting_;
  changed_.SignalAll();
  RETURN_IF_ERROR(status);
  --free_;
  return Place(this);
}

size_t FileGate::downloads_waiting() const {
  MutexLock lock(&mu_);
  return downloads_waiting_;
}

void FileGate::Leave() {
  MutexLock lock(&mu_);
  ++free_;
  changed_.SignalAll();
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
      transfer->Stop();  // only now: who ends because of it must not be taken for the first
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
