#include "control/reconciler/state.h"

#include <algorithm>

#include "control/core/durable.h"
#include "control/core/record_view.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

constexpr int kScanPage = 1000;

void Add(scheduler::Amount& to, const torpor::v1::Binding& binding, int64_t sign) {
  to.memory_bytes += sign * binding.memory_bytes();
  to.cpu_milli += sign * binding.cpu_milli();
  to.actors += sign;
}

template <typename T>
Status LoadTable(Store& store, State& state) {
  std::string after;
  while (true) {
    ASSIGN_OR_RETURN(std::vector<Row> rows, store.Scan(KindOf<T>(), "", after, kScanPage));
    MutexLock lock(&state.mu);
    for (Row& row : rows) {
      auto value = std::make_shared<T>();
      if (!value->ParseFromString(row.value)) {
        return Fail(reasons::kStoreCorrupt,
                    fmt::format("row {} of kind {} of the store cannot be read", row.key,
                                static_cast<int>(KindOf<T>())));
      }
      state.table<T>()[row.key] = {std::move(value), row.version};
      after = row.key;
    }
    if (rows.size() < kScanPage) return OkStatus();
  }
}

}  // namespace

std::string State::ActorKeyOf(const std::string& uid) const {
  MutexLock lock(&mu);
  auto it = actor_by_uid.find(uid);
  return it == actor_by_uid.end() ? std::string() : it->second;
}

std::string State::TemplateKeyOf(const std::string& uid) const {
  MutexLock lock(&mu);
  auto it = template_by_uid.find(uid);
  return it == template_by_uid.end() ? std::string() : it->second;
}

Status LoadState(Store& store, State& state) {
  RETURN_IF_ERROR(LoadTable<torpor::v1::AtespaceRecord>(store, state));
  RETURN_IF_ERROR(LoadTable<torpor::v1::TemplateRecord>(store, state));
  RETURN_IF_ERROR(LoadTable<torpor::v1::ActorRecord>(store, state));
  RETURN_IF_ERROR(LoadTable<torpor::v1::TagRecord>(store, state));
  RETURN_IF_ERROR(LoadTable<torpor::v1::NodeRecord>(store, state));
  RETURN_IF_ERROR(LoadTable<torpor::v1::WorkerRecord>(store, state));
  RETURN_IF_ERROR(LoadTable<torpor::v1::GarbageRecord>(store, state));
  RETURN_IF_ERROR(LoadTable<torpor::v1::CpuRecord>(store, state));
  MutexLock lock(&state.mu);
  for (const auto& [key, entry] : state.table<torpor::v1::ActorRecord>()) {
    state.actor_by_uid[entry.value->actor().metadata().uid()] = key;
    if (entry.value->has_binding()) {
      const torpor::v1::Binding& binding = entry.value->binding();
      Add(state.allocated[binding.worker_uid()], binding, 1);
    }
  }
  for (const auto& [key, entry] : state.table<torpor::v1::TemplateRecord>()) {
    state.template_by_uid[entry.value->actor_template().metadata().uid()] = key;
  }
  return OkStatus();
}

scheduler::Amount Txn::Allocated(const std::string& worker_uid) const {
  scheduler::Amount amount;
  {
    MutexLock lock(&state_->mu);
    auto it = state_->allocated.find(worker_uid);
    if (it != state_->allocated.end()) amount = it->second;
  }
  if (auto it = allocated_change_.find(worker_uid); it != allocated_change_.end()) {
    amount.memory_bytes += it->second.memory_bytes;
    amount.cpu_milli += it->second.cpu_milli;
    amount.actors += it->second.actors;
  }
  return amount;
}

void Txn::MoveBinding(const torpor::v1::ActorRecord* before, const torpor::v1::ActorRecord* after) {
  if (before != nullptr && before->has_binding()) {
    Add(allocated_change_[before->binding().worker_uid()], before->binding(), -1);
  }
  if (after != nullptr && after->has_binding()) {
    Add(allocated_change_[after->binding().worker_uid()], after->binding(), 1);
  }
}

void Txn::PutRaw(Kind kind, std::string key, std::optional<std::string> value) {
  std::pair<int, std::string> id(static_cast<int>(kind), key);
  raw_[id] = Write{kind, std::move(key), std::move(value), kAnyVersion};
}

template <typename T>
void Txn::AddWrites(Batch& batch) const {
  for (const auto& [key, value] : std::get<Staged<T>>(staged_)) {
    int64_t version = VersionOf<T>(key);
    if (value == nullptr && version == 0) continue;  // made and removed in one transaction
    batch.durable |= core::MustSurvivePowerCut(state_->Find<T>(key).get(), value.get());
    Write write{KindOf<T>(), key, std::nullopt, version};
    if (value != nullptr) write.value = value->SerializeAsString();
    batch.writes.push_back(std::move(write));
  }
}

Batch Txn::MakeBatch() const {
  Batch batch;
  batch.durable = false;
  AddWrites<torpor::v1::AtespaceRecord>(batch);
  AddWrites<torpor::v1::TemplateRecord>(batch);
  AddWrites<torpor::v1::ActorRecord>(batch);
  AddWrites<torpor::v1::TagRecord>(batch);
  AddWrites<torpor::v1::NodeRecord>(batch);
  AddWrites<torpor::v1::WorkerRecord>(batch);
  AddWrites<torpor::v1::GarbageRecord>(batch);
  AddWrites<torpor::v1::CpuRecord>(batch);
  for (const auto& [id, write] : raw_) batch.writes.push_back(write);
  batch.events = events_;
  return batch;
}

std::vector<std::string> Txn::ChangedActors() const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : std::get<Staged<torpor::v1::ActorRecord>>(staged_)) {
    keys.push_back(key);
  }
  return keys;
}

template <typename T>
void Txn::PublishTable() {
  Table<T>& table = state_->table<T>();
  for (auto& [key, value] : std::get<Staged<T>>(staged_)) {
    if constexpr (std::is_same_v<T, torpor::v1::ActorRecord>) {
      if (auto old = table.find(key); old != table.end()) {
        state_->actor_by_uid.erase(old->second.value->actor().metadata().uid());
      }
      if (value != nullptr) state_->actor_by_uid[value->actor().metadata().uid()] = key;
    }
    if constexpr (std::is_same_v<T, torpor::v1::TemplateRecord>) {
      if (auto old = table.find(key); old != table.end()) {
        state_->template_by_uid.erase(old->second.value->actor_template().metadata().uid());
      }
      if (value != nullptr) {
        state_->template_by_uid[value->actor_template().metadata().uid()] = key;
      }
    }
    if (value == nullptr) {
      table.erase(key);
    } else {
      TableEntry<T>& entry = table[key];
      entry.value = std::move(value);
      ++entry.version;
    }
  }
}

void Txn::Publish() {
  MutexLock lock(&state_->mu);
  PublishTable<torpor::v1::AtespaceRecord>();
  PublishTable<torpor::v1::TemplateRecord>();
  PublishTable<torpor::v1::ActorRecord>();
  PublishTable<torpor::v1::TagRecord>();
  PublishTable<torpor::v1::NodeRecord>();
  PublishTable<torpor::v1::WorkerRecord>();
  PublishTable<torpor::v1::GarbageRecord>();
  PublishTable<torpor::v1::CpuRecord>();
  for (const auto& [uid, change] : allocated_change_) {
    scheduler::Amount& amount = state_->allocated[uid];
    amount.memory_bytes += change.memory_bytes;
    amount.cpu_milli += change.cpu_milli;
    amount.actors += change.actors;
  }
}

void Txn::StampMetadata(ateapi::ResourceMetadata& metadata, int64_t version) const {
  metadata.set_version(version);
  if (!metadata.has_create_time()) *metadata.mutable_create_time() = ToProto(now_);
  *metadata.mutable_update_time() = ToProto(std::max(now_, FromProto(metadata.create_time())));
}

void Txn::Stamp(torpor::v1::AtespaceRecord& record, int64_t version) const {
  StampMetadata(*record.mutable_atespace()->mutable_metadata(), version);
}
void Txn::Stamp(torpor::v1::TemplateRecord& record, int64_t version) const {
  StampMetadata(*record.mutable_actor_template()->mutable_metadata(), version);
}
void Txn::Stamp(torpor::v1::ActorRecord& record, int64_t version) const {
  StampMetadata(*record.mutable_actor()->mutable_metadata(), version);
}
void Txn::Stamp(torpor::v1::TagRecord& record, int64_t version) const {
  StampMetadata(*record.mutable_tag()->mutable_metadata(), version);
}
void Txn::Stamp(torpor::v1::WorkerRecord& record, int64_t version) const {
  StampMetadata(*record.mutable_worker()->mutable_metadata(), version);
}

}  // namespace torpor::control
