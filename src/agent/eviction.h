#pragma once
// Which entries of a cache go so that it fits its budget again. Pure (node.md 6).

#include <cstdint>
#include <string>
#include <vector>

#include "base/time.h"

namespace torpor::agent {

struct CacheEntry {
  std::string key;
  int64_t bytes = 0;
  WallTime last_used;
  bool pinned = false;
  int rank = 0;  // lower ranks go first, whatever their age
  bool operator==(const CacheEntry&) const = default;
};

struct CacheBudget {
  int64_t bytes_max = 0;
  Duration min_age{};  // younger entries stay, whatever the pressure
};

// Keys of the victims in the order in which they go: nothing while the sum is within the budget,
// else least recently used ones until nine tenths of it are left. Pinned entries never go.
std::vector<std::string> PlanEviction(std::vector<CacheEntry> entries, WallTime now,
                                      const CacheBudget& budget);

}  // namespace torpor::agent
