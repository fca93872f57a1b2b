#include "agent/eviction.h"

#include <algorithm>
#include <tuple>

namespace torpor::agent {

std::vector<std::string> PlanEviction(std::vector<CacheEntry> entries, WallTime now,
                                      const CacheBudget& budget) {
  int64_t bytes = 0;
  for (const CacheEntry& entry : entries) bytes += entry.bytes;
  if (bytes <= budget.bytes_max) return {};
  std::sort(entries.begin(), entries.end(), [](const CacheEntry& a, const CacheEntry& b) {
    return std::tie(a.rank, a.last_used, a.key) < std::tie(b.rank, b.last_used, b.key);
  });
  std::vector<std::string> out;
  const int64_t low_water = budget.bytes_max / 10 * 9;
  for (const CacheEntry& entry : entries) {
    if (bytes <= low_water) break;
    // A use in the future is a clock that was set back: as good as just now.
    if (entry.pinned || now - entry.last_used < budget.min_age) continue;
    out.push_back(entry.key);
    bytes -= entry.bytes;
  }
  return out;
}

}  // namespace torpor::agent
