#pragma once
// A Store in memory, for tests and `--store memory`. Nothing survives the process.

#include <map>

#include "base/sync.h"
#include "control/store/store.h"

namespace torpor::control {

// Thread-safe.
class MemoryStore : public Store {
 public:
  Status Commit(const Batch& batch) override EXCLUDES(mu_);
  StatusOr<std::optional<Row>> Get(Kind kind, std::string_view key) override EXCLUDES(mu_);
  StatusOr<std::vector<Row>> Scan(Kind kind, std::string_view prefix, std::string_view after,
                                  int limit) override EXCLUDES(mu_);
  StatusOr<std::vector<StoredEvent>> ListEvents(const EventQuery& query) override EXCLUDES(mu_);
  Status TrimEvents(WallTime before, int64_t per_atespace_max) override EXCLUDES(mu_);

 private:
  Mutex mu_;
  std::map<std::pair<Kind, std::string>, Row> rows_ GUARDED_BY(mu_);
  std::map<int64_t, torpor::v1::Event> events_ GUARDED_BY(mu_);
  int64_t next_sequence_ GUARDED_BY(mu_) = 1;
};

}  // namespace torpor::control
