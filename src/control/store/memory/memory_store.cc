#include "control/store/memory/memory_store.h"

#include <set>

#include "model/reasons.h"

namespace torpor::control {
namespace {

bool Matches(const EventQuery& query, const torpor::v1::Event& event) {
  if (!query.atespace.empty() && event.actor().atespace() != query.atespace) return false;
  if (!query.actor_name.empty() && event.actor().name() != query.actor_name) return false;
  if (!query.node_name.empty() && event.node_name() != query.node_name) return false;
  WallTime time = FromProto(event.time());
  return (!query.start || time >= *query.start) && (!query.end || time < *query.end);
}

}  // namespace

Status MemoryStore::Commit(const Batch& batch) {
  MutexLock lock(&mu_);
  for (const Write& write : batch.writes) {
    if (write.expected_version == kAnyVersion) continue;
    auto it = rows_.find({write.kind, write.key});
    int64_t version = it == rows_.end() ? 0 : it->second.version;
    if (version != write.expected_version) {
      return Fail(reasons::kVersionConflict,
                  fmt::format("row {} has version {}, expected {}", write.key, version,
                              write.expected_version));
    }
  }
  for (const Write& write : batch.writes) {
    std::pair<Kind, std::string> id(write.kind, write.key);
    if (!write.value.has_value()) {
      rows_.erase(id);
      continue;
    }
    Row& row = rows_[id];
    row.key = write.key;
    row.value = *write.value;
    ++row.version;
  }
  for (const torpor::v1::Event& event : batch.events) events_[next_sequence_++] = event;
  return OkStatus();
}

StatusOr<std::optional<Row>> MemoryStore::Get(Kind kind, std::string_view key) {
  MutexLock lock(&mu_);
  auto it = rows_.find({kind, std::string(key)});
  if (it == rows_.end()) return std::optional<Row>();
  return std::optional<Row>(it->second);
}

StatusOr<std::vector<Row>> MemoryStore::Scan(Kind kind, std::string_view prefix,
                                             std::string_view after, int limit) {
  MutexLock lock(&mu_);
  std::vector<Row> rows;
  std::string from(std::max(prefix, after));
  for (auto it = rows_.lower_bound({kind, from}); it != rows_.end(); ++it) {
    const std::string& key = it->first.second;
    if (it->first.first != kind || key.compare(0, prefix.size(), prefix) != 0) break;
    if (!after.empty() && key <= after) continue;
    if (static_cast<int>(rows.size()) == limit) break;
    rows.push_back(it->second);
  }
  return rows;
}

StatusOr<std::vector<StoredEvent>> MemoryStore::ListEvents(const EventQuery& query) {
  MutexLock lock(&mu_);
  std::vector<StoredEvent> events;
  for (auto it = events_.rbegin(); it != events_.rend(); ++it) {
    if (static_cast<int>(events.size()) == query.limit) break;
    if (query.before_sequence > 0 && it->first >= query.before_sequence) continue;
    if (Matches(query, it->second)) events.push_back({it->first, it->second});
  }
  return events;
}

Status MemoryStore::TrimEvents(WallTime before, int64_t per_atespace_max) {
  MutexLock lock(&mu_);
  std::map<std::string, int64_t> kept;
  std::set<int64_t> removed;
  for (auto it = events_.rbegin(); it != events_.rend(); ++it) {
    bool old = FromProto(it->second.time()) < before;
    if (old || ++kept[it->second.actor().atespace()] > per_atespace_max) removed.insert(it->first);
  }
  for (int64_t sequence : removed) events_.erase(sequence);
  return OkStatus();
}

}  // namespace torpor::control
