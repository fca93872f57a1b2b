#include "worker/pool/pool_plan.h"

#include <algorithm>

namespace torpor::worker {

PoolPlan PlanPool(std::vector<PoolLine> lines, MonotonicTime now, const PoolLimits& limits) {
  std::sort(lines.begin(), lines.end(), [](const PoolLine& a, const PoolLine& b) {
    return a.last_wake != b.last_wake ? a.last_wake > b.last_wake : a.key < b.key;
  });
  PoolPlan plan;
  int held = 0;
  for (const PoolLine& line : lines) held += line.ready + line.making;
  int given = 0;
  for (const PoolLine& line : lines) {
    const bool is_recent = now - line.last_wake < limits.recent;
    const int want = is_recent ? std::min(limits.per_key, limits.slots_max - given) : 0;
    given += want;
    const int have = line.ready + line.making;
    for (int i = 0; i < std::min(line.ready, have - want); ++i) plan.drop.push_back(line.key);
    const bool may_make = line.may_make && now >= line.not_before;
    for (int i = have; i < want && may_make && held < limits.slots_max; ++i, ++held) {
      plan.make.push_back(line.key);
    }
    if (want == 0 && have == 0) plan.forget.push_back(line.key);
  }
  return plan;
}

}  // namespace torpor::worker
