#pragma once
// One upload or download as a whole: may it go on, and how far is it.

#include <atomic>
#include <cstdint>
#include <functional>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"

namespace torpor::snapshot {

// Shared by all threads of one operation; thread-safe. Whoever moves bytes calls Check for each
// piece.
class Transfer {
 public:
  // `clock` outlives the transfer.
  Transfer(Clock* clock, MonotonicTime deadline) : clock_(clock), deadline_(deadline) {}

  // OK, or why it has to end: CANCELLED, DEADLINE_EXCEEDED.
  Status Check() const;
  void Cancel() { cancelled_ = true; }
  // A part failed, so the others need not go on.
  void Stop() { stopped_ = true; }

  void AddTotal(int64_t bytes) { total_ += bytes; }
  void Advance(int64_t bytes) { done_ += bytes; }
  int64_t total_bytes() const { return total_; }
  int64_t done_bytes() const { return done_; }
  MonotonicTime deadline() const { return deadline_; }

 private:
  Clock* const clock_;
  const MonotonicTime deadline_;
  std::atomic<bool> cancelled_{false};
  std::atomic<bool> stopped_{false};
  std::atomic<int64_t> total_{0};
  std::atomic<int64_t> done_{0};
};

// Someone waits for a download, so it goes before uploads. So does what ends an upload, or no
// operation would end while others begin.
enum class Urgency { kDownload, kUpload, kCommit };

// work(0) ... work(count - 1) on at most `threads_max` threads. The first error stops `transfer`,
// so that the others end early, and is returned when all have ended.
Status RunLegs(size_t count, size_t threads_max, Transfer* transfer,
               const std::function<Status(size_t index)>& work);

// Processors that this process may use; at least 1.
size_t Cores();

}  // namespace torpor::snapshot
