#pragma once
// Which sandboxes a warm pool should hold. Pure.

#include <string>
#include <vector>

#include "base/time.h"

namespace torpor::worker {

// What the pool knows of the sandboxes of one key.
struct PoolLine {
  std::string key;
  MonotonicTime last_wake;
  int ready = 0;
  int making = 0;
  // After a sandbox could not be made: not before this time again.
  MonotonicTime not_before = MonotonicTime::min();
  // What they are made from is known to be there: nobody took one since the last wake.
  bool may_make = true;
};

struct PoolPlan {
  std::vector<std::string> make;    // a sandbox each; a key may be there more than once
  std::vector<std::string> drop;    // a ready sandbox each, likewise
  std::vector<std::string> forget;  // nothing is there and nothing is wanted
};

struct PoolLimits {
  int slots_max = 0;  // of all keys
  int per_key = 1;
  Duration recent{};  // how long after its last wake a key is served
};

// The keys woken last get their sandboxes first. Something is made only when there is room for it,
// which a drop gives first.
PoolPlan PlanPool(std::vector<PoolLine> lines, MonotonicTime now, const PoolLimits& limits);

}  // namespace torpor::worker
