#pragma once
// The thread of a node for work that nobody waits for: sums of local generations, flushing of
// images, garbage collection, sizes. It has the lowest priority, and what reads
// or flushes much waits until no operation has run for a while.

#include <thread>

#include "agent/node_agent.h"
#include "base/sync.h"
#include "base/time.h"

namespace torpor::agent {

struct HousekeeperOptions {
  Duration quiet = std::chrono::seconds(5);      // without operations, before much is read
  Duration patience = std::chrono::seconds(60);  // then also on a busy node
  Duration gc_period = std::chrono::minutes(5);  // also at the start
  Duration cache_period = std::chrono::minutes(1);
};

// What is due; pure, so that tests need no thread.
class HousekeepingPlan {
 public:
  HousekeepingPlan(HousekeeperOptions options, MonotonicTime start)
      : options_(options), gc_at_(start), cache_at_(start) {}

  // `pending`: something waits to be hashed or flushed. `quiet_since` is unset while an operation
  // runs. True when that work may begin.
  bool MayWork(MonotonicTime now, bool pending, std::optional<MonotonicTime> quiet_since);
  // Whether work that has begun gives way to an operation.
  bool MustYield(MonotonicTime now) const;
  // True when the period has passed; it begins anew then.
  bool TakeGc(MonotonicTime now);
  bool TakeCache(MonotonicTime now);

 private:
  const HousekeeperOptions options_;
  MonotonicTime gc_at_;
  MonotonicTime cache_at_;
  std::optional<MonotonicTime> pending_since_;
};

class Housekeeper {
 public:
  // `agent` has recovered and outlives the housekeeper, like `clock`.
  Housekeeper(NodeAgent* agent, HousekeeperOptions options, Clock* clock);
  ~Housekeeper() { Stop(); }
  // Idempotent; ends soon, also in the middle of hashing.
  void Stop() EXCLUDES(mu_);

 private:
  void Loop();
  bool stopping() const EXCLUDES(mu_);

  NodeAgent* const agent_;
  Clock* const clock_;
  HousekeepingPlan plan_;
  mutable Mutex mu_;
  CondVar stopped_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace torpor::agent
