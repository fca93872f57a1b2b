#pragma once
// When each actor was last used, for the idle clock of the control plane.
//
// A cell belongs to one activation (uid, generation) and is shared by its routes; touching it takes
// no lock. The tracker collects what changed; who sends it is an ActivityReporter.

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/sync.h"
#include "base/time.h"
#include "torpor/v1/node.pb.h"

namespace torpor::router {

// Thread-safe.
class ActivityCell {
 public:
  // What its door said about the activation. A hint like a route: the door decides.
  static constexpr int64_t kServing = 0;
  static constexpr int64_t kAsleep = -1;  // Captured.
  static constexpr int64_t kEnded = -2;   // Stopped, or it ended by itself.
  // Above 0: the number of the drain under way.

  ActivityCell(std::string uid, int64_t generation)
      : uid_(std::move(uid)), generation_(generation) {}

  const std::string& uid() const { return uid_; }
  int64_t generation() const { return generation_; }

  // A request was passed on.
  void Begin(WallTime now) {
    open_.fetch_add(1, std::memory_order_acq_rel);
    Touch(now);
  }
  // Its answer has begun.
  void AnswerBegan() { streams_.fetch_add(1, std::memory_order_acq_rel); }
  // It has become a WebSocket: from now on its data frames count, not its being open.
  void BecameSocket() { sockets_.fetch_add(1, std::memory_order_acq_rel); }
  // True when no other request is open.
  bool End(WallTime now, bool answer_began, bool was_socket) {
    if (was_socket) {
      sockets_.fetch_sub(1, std::memory_order_acq_rel);
      changed_.store(true, std::memory_order_release);
    } else {
      Touch(now);
    }
    if (answer_began) streams_.fetch_sub(1, std::memory_order_acq_rel);
    return open_.fetch_sub(1, std::memory_order_acq_rel) == 1;
  }
  void Touch(WallTime now) {
    last_active_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
    changed_.store(true, std::memory_order_release);
  }
  int open() const { return open_.load(std::memory_order_acquire); }
  int streams() const { return streams_.load(std::memory_order_acquire); }

  int64_t phase() const { return phase_.load(std::memory_order_acquire); }
  bool serving() const { return phase() == kServing; }
  bool pausing() const { return phase() > 0 || phase() == kAsleep; }
  void set_phase(int64_t phase) { phase_.store(phase, std::memory_order_release); }
  // The door admitted a connection that was asked for when the phase was `seen`, so it serves.
  void ServesAgain(int64_t seen) { phase_.compare_exchange_strong(seen, kServing); }
  // A request did not get its answer, or not all of it, because of the drain.
  bool was_cut() const { return was_cut_.load(std::memory_order_acquire); }
  void set_was_cut(bool cut) { was_cut_.store(cut, std::memory_order_release); }
  // Before this time the door closes no connection that is in use.
  MonotonicTime cut_after() const {
    return MonotonicTime(Duration(cut_after_.load(std::memory_order_relaxed)));
  }
  void set_cut_after(MonotonicTime t) {
    cut_after_.store(t.time_since_epoch().count(), std::memory_order_relaxed);
  }

 private:
  friend class ActivityTracker;
  const std::string uid_;
  const int64_t generation_;
  std::atomic<int64_t> last_active_{0};  // WallTime ticks.
  std::atomic<int> open_{0};
  std::atomic<int> streams_{0};
  std::atomic<int> sockets_{0};
  std::atomic<bool> changed_{false};
  std::atomic<int64_t> phase_{kServing};
  std::atomic<bool> was_cut_{false};
  std::atomic<int64_t> cut_after_{0};  // MonotonicTime ticks.
};

// Tells the control plane about actors. Does not block.
class ActivityReporter {
 public:
  virtual ~ActivityReporter() = default;
  // At most once a second, from one thread. A report that gets lost is made good by the next one of
  // the same actor.
  virtual void Report(const torpor::v1::ReportActivityRequest& request) = 0;
  // What an actor asked for in its answer. From any thread; failures are logged.
  virtual void WishIdle(const std::string& uid, int64_t generation, bool durable) = 0;
  virtual void WishAwake(const std::string& uid, int64_t generation, Duration duration) = 0;
};

// Thread-safe.
class ActivityTracker {
 public:
  // The cell of an activation; older ones of the same actor are forgotten once nobody uses them.
  std::shared_ptr<ActivityCell> Cell(const std::string& uid, int64_t generation) EXCLUDES(mu_);
  // Null when there is none.
  std::shared_ptr<ActivityCell> Find(const std::string& uid, int64_t generation) EXCLUDES(mu_);
  // What changed since the last call. A request or stream in flight counts as activity `now`.
  torpor::v1::ReportActivityRequest Collect(WallTime now) EXCLUDES(mu_);

 private:
  Mutex mu_;
  std::unordered_map<std::string, std::shared_ptr<ActivityCell>> cells_ GUARDED_BY(mu_);
  // Cells of older activations that still have requests open.
  std::vector<std::shared_ptr<ActivityCell>> older_ GUARDED_BY(mu_);
};

}  // namespace torpor::router
