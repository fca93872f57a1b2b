#pragma once
// The committed records in memory, and a transaction over them.
//
// State is read by every thread under one lock and written by the writer's Publish only. A Txn
// collects what one batch of events changes: later reads of the same Txn see it, nobody else does
// before the store has committed it. The row version of the store is the public metadata.version.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/sync.h"
#include "base/time.h"
#include "control/store/store.h"
#include "scheduler/placement.h"
#include "torpor/v1/record.pb.h"

namespace torpor::control {

template <typename T>
struct TableEntry {
  std::shared_ptr<const T> value;
  int64_t version = 0;
};
template <typename T>
using Table = std::map<std::string, TableEntry<T>>;

struct State {
  mutable Mutex mu;
  std::tuple<Table<torpor::v1::AtespaceRecord>, Table<torpor::v1::TemplateRecord>,
             Table<torpor::v1::ActorRecord>, Table<torpor::v1::TagRecord>,
             Table<torpor::v1::NodeRecord>, Table<torpor::v1::WorkerRecord>,
             Table<torpor::v1::GarbageRecord>, Table<torpor::v1::CpuRecord>>
      tables GUARDED_BY(mu);
  std::unordered_map<std::string, std::string> actor_by_uid GUARDED_BY(mu);
  std::unordered_map<std::string, std::string> template_by_uid GUARDED_BY(mu);
  // What the actors bound to a worker take of it, by worker uid.
  std::unordered_map<std::string, scheduler::Amount> allocated GUARDED_BY(mu);

  template <typename T>
  Table<T>& table() REQUIRES(mu) {
    return std::get<Table<T>>(tables);
  }
  template <typename T>
  const Table<T>& table() const REQUIRES(mu) {
    return std::get<Table<T>>(tables);
  }
  // Null when there is no such row.
  template <typename T>
  std::shared_ptr<const T> Find(const std::string& key) const EXCLUDES(mu) {
    MutexLock lock(&mu);
    auto it = table<T>().find(key);
    return it == table<T>().end() ? nullptr : it->second.value;
  }
  std::string ActorKeyOf(const std::string& uid) const EXCLUDES(mu);
  std::string TemplateKeyOf(const std::string& uid) const EXCLUDES(mu);
};

// The kind of a record in the store.
template <typename T>
constexpr Kind KindOf();
template <>
constexpr Kind KindOf<torpor::v1::AtespaceRecord>() {
  return Kind::kAtespace;
}
template <>
constexpr Kind KindOf<torpor::v1::TemplateRecord>() {
  return Kind::kTemplate;
}
template <>
constexpr Kind KindOf<torpor::v1::ActorRecord>() {
  return Kind::kActor;
}
template <>
constexpr Kind KindOf<torpor::v1::TagRecord>() {
  return Kind::kTag;
}
template <>
constexpr Kind KindOf<torpor::v1::NodeRecord>() {
  return Kind::kNode;
}
template <>
constexpr Kind KindOf<torpor::v1::WorkerRecord>() {
  return Kind::kWorker;
}
template <>
constexpr Kind KindOf<torpor::v1::GarbageRecord>() {
  return Kind::kGarbage;
}
template <>
constexpr Kind KindOf<torpor::v1::CpuRecord>() {
  return Kind::kCpu;
}

// Used by the writer's thread only.
class Txn {
 public:
  Txn(State* state, WallTime now) : state_(state), now_(now) {}
  Txn(const Txn&) = delete;
  Txn& operator=(const Txn&) = delete;

  WallTime now() const { return now_; }

  template <typename T>
  std::shared_ptr<const T> Get(const std::string& key) const {
    const auto& staged = std::get<Staged<T>>(staged_);
    if (auto it = staged.find(key); it != staged.end()) return it->second;
    return state_->Find<T>(key);
  }
  // Sets metadata.version and update_time where the record has metadata; returns what is stored.
  template <typename T>
  std::shared_ptr<const T> Put(const std::string& key, T value) {
    Stamp(value, VersionOf<T>(key) + 1);
    auto stored = std::make_shared<const T>(std::move(value));
    Stage<T>(key, stored);
    return stored;
  }
  template <typename T>
  void Remove(const std::string& key) {
    Stage<T>(key, nullptr);
  }
  // All rows in the order of their keys, as this transaction sees them.
  template <typename T>
  std::vector<std::pair<std::string, std::shared_ptr<const T>>> All() const {
    std::map<std::string, std::shared_ptr<const T>> rows;
    {
      MutexLock lock(&state_->mu);
      for (const auto& [key, entry] : state_->table<T>()) rows.emplace(key, entry.value);
    }
    for (const auto& [key, value] : std::get<Staged<T>>(staged_)) rows[key] = value;
    std::vector<std::pair<std::string, std::shared_ptr<const T>>> out;
    for (auto& [key, value] : rows) {
      if (value != nullptr) out.emplace_back(key, std::move(value));
    }
    return out;
  }

  // What the bound actors take of a worker, this transaction's changes included.
  scheduler::Amount Allocated(const std::string& worker_uid) const;
  void AddEvent(torpor::v1::Event event) { events_.push_back(std::move(event)); }
  // A row that is not kept in memory; its version is not compared. nullopt deletes it.
  void PutRaw(Kind kind, std::string key, std::optional<std::string> value);
  // Runs in order after the commit, outside every lock.
  void AfterCommit(std::function<void()> action) { after_.push_back(std::move(action)); }

  Batch MakeBatch() const;
  // Keys of the actors that this transaction changes or removes.
  std::vector<std::string> ChangedActors() const;
  // Makes the changes visible; after the store has committed MakeBatch().
  void Publish();
  std::vector<std::function<void()>> TakeAfter() { return std::exchange(after_, {}); }

 private:
  template <typename T>
  using Staged = std::map<std::string, std::shared_ptr<const T>>;  // null = removed

  template <typename T>
  int64_t VersionOf(const std::string& key) const {
    MutexLock lock(&state_->mu);
    auto it = state_->table<T>().find(key);
    return it == state_->table<T>().end() ? 0 : it->second.version;
  }
  template <typename T>
  void Stage(const std::string& key, std::shared_ptr<const T> value) {
    if constexpr (std::is_same_v<T, torpor::v1::ActorRecord>) {
      MoveBinding(Get<T>(key).get(), value.get());
    }
    std::get<Staged<T>>(staged_)[key] = std::move(value);
  }
  // Appends the writes; `batch.durable` when a power cut must not undo one of them.
  template <typename T>
  void AddWrites(Batch& batch) const;
  template <typename T>
  void PublishTable() REQUIRES(state_->mu);
  void MoveBinding(const torpor::v1::ActorRecord* before, const torpor::v1::ActorRecord* after);

  void Stamp(torpor::v1::AtespaceRecord& record, int64_t version) const;
  void Stamp(torpor::v1::TemplateRecord& record, int64_t version) const;
  void Stamp(torpor::v1::ActorRecord& record, int64_t version) const;
  void Stamp(torpor::v1::TagRecord& record, int64_t version) const;
  void Stamp(torpor::v1::WorkerRecord& record, int64_t version) const;
  void Stamp(torpor::v1::NodeRecord&, int64_t) const {}
  void Stamp(torpor::v1::GarbageRecord&, int64_t) const {}
  void Stamp(torpor::v1::CpuRecord&, int64_t) const {}
  void StampMetadata(ateapi::ResourceMetadata& metadata, int64_t version) const;

  State* const state_;
  const WallTime now_;
  std::tuple<Staged<torpor::v1::AtespaceRecord>, Staged<torpor::v1::TemplateRecord>,
             Staged<torpor::v1::ActorRecord>, Staged<torpor::v1::TagRecord>,
             Staged<torpor::v1::NodeRecord>, Staged<torpor::v1::WorkerRecord>,
             Staged<torpor::v1::GarbageRecord>, Staged<torpor::v1::CpuRecord>>
      staged_;
  std::map<std::string, scheduler::Amount> allocated_change_;
  std::map<std::pair<int, std::string>, Write> raw_;
  std::vector<torpor::v1::Event> events_;
  std::vector<std::function<void()>> after_;
};

// Fills `state` from `store`.
Status LoadState(Store& store, State& state);

}  // namespace torpor::control
