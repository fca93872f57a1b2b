#include "agent/garbage.h"

namespace torpor::agent {
namespace {

template <typename Key>
std::set<Key> Count(const std::set<Key>& seen, int passes, std::map<Key, int>* counts) {
  std::erase_if(*counts, [&](const auto& item) { return seen.count(item.first) == 0; });
  std::set<Key> out;
  for (const Key& key : seen) {
    if (++(*counts)[key] >= passes) out.insert(key);
  }
  return out;
}

}  // namespace

Garbage JudgeGarbage(const GarbageFacts& facts, const GarbageRules& rules) {
  Garbage out;
  for (const auto& [name, age] : facts.silent_sockets) {
    if (age >= rules.min_age) out.sockets.insert(name);
  }
  if (facts.live.empty()) return out;
  for (const GarbageFacts::Tree& tree : facts.trees) {
    if (tree.resident || tree.in_journal) continue;
    auto live = facts.live.find(tree.uid);
    if (live == facts.live.end()) {
      if (!tree.mounted && tree.age >= rules.min_age) out.trees.insert(tree.uid);
      continue;
    }
    for (const GarbageFacts::Snapshot& snapshot : tree.snapshots) {
      if (snapshot.pinned || snapshot.age < rules.min_age) continue;
      if (live->second.count(snapshot.name) == 0) out.snapshots.insert({tree.uid, snapshot.name});
    }
  }
  return out;
}

Garbage Verdicts::Confirm(const Garbage& seen) {
  Garbage out;
  out.trees = Count(seen.trees, passes_, &count_.trees);
  out.snapshots = Count(seen.snapshots, passes_, &count_.snapshots);
  out.sockets = Count(seen.sockets, passes_, &count_.sockets);
  return out;
}

bool IsDiskPressure(int64_t free_bytes, int64_t total_bytes, int64_t largest_capture_bytes) {
  return free_bytes < total_bytes / 10 || free_bytes / 2 < largest_capture_bytes;
}

}  // namespace torpor::agent
