#pragma once
// A store that passes everything on; tests override what they want to happen differently.

#include "control/store/store.h"

namespace torpor::control {

class ForwardingStore : public Store {
 public:
  explicit ForwardingStore(Store* store) : store_(store) {}
  Status Commit(const Batch& batch) override { return store_->Commit(batch); }
  StatusOr<std::optional<Row>> Get(Kind kind, std::string_view key) override {
    return store_->Get(kind, key);
  }
  StatusOr<std::vector<Row>> Scan(Kind kind, std::string_view prefix, std::string_view after,
                                  int limit) override {
    return store_->Scan(kind, prefix, after, limit);
  }
  StatusOr<std::vector<StoredEvent>> ListEvents(const EventQuery& query) override {
    return store_->ListEvents(query);
  }
  Status TrimEvents(WallTime before, int64_t per_atespace_max) override {
    return store_->TrimEvents(before, per_atespace_max);
  }

 private:
  Store* const store_;
};

}  // namespace torpor::control
