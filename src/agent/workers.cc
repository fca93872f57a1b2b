#include "agent/workers.h"

#include <fmt/format.h>

#include "model/reasons.h"

namespace torpor::agent {
namespace {
constexpr char kSlotsFile[] = "worker-slots.json";
constexpr size_t kSlotsBytesMax = 1 << 20;
}  // namespace

Workers::Workers(const NodeDirs* dirs, WorkerClientFactory factory, IdSource* ids,
                 std::vector<std::string> worker_ids)
    : dirs_(dirs), ids_(ids) {
  for (const std::string& id : worker_ids) slots_[id] = {id, {}, factory(id)};
}

Status Workers::Load() {
  auto json = dirs_->root().ReadFile(kSlotsFile, kSlotsBytesMax);
  if (json.status().code() == Code::kNotFound) return OkStatus();
  RETURN_IF_ERROR(json.status());
  torpor::v1::WorkerSlots stored;
  RETURN_IF_ERROR(Annotate(FromJson(*json, &stored), kSlotsFile));
  MutexLock lock(&mu_);
  for (const auto& slot : stored.slots()) {
    auto it = slots_.find(slot.worker_id());
    if (it == slots_.end()) continue;  // no longer configured; its uid is never given again
    it->second.info.set_worker_uid(slot.worker_uid());
    it->second.info.set_epoch(slot.epoch());
  }
  return OkStatus();
}

Status Workers::Store(const std::map<std::string, WorkerSlot>& slots) const {
  torpor::v1::WorkerSlots stored;
  for (const auto& [id, slot] : slots) {
    if (slot.info.worker_uid().empty()) continue;
    auto* out = stored.add_slots();
    out->set_worker_id(id);
    out->set_worker_uid(slot.info.worker_uid());
    out->set_epoch(slot.info.epoch());
  }
  ASSIGN_OR_RETURN(std::string json, ToJson(stored));
  return dirs_->root().DurableWrite(kSlotsFile, json, 0600);
}

StatusOr<torpor::v1::RegisterWorkerResponse> Workers::Register(const std::string& worker_id,
                                                               torpor::v1::WorkerInfo info,
                                                               bool* new_process) {
  // The lock is held over the write: workers register rarely, and two epochs must not be equal.
  MutexLock lock(&mu_);
  auto it = slots_.find(worker_id);
  if (it == slots_.end()) {
    return Fail(reasons::kWorkerNotFound, fmt::format("no worker slot {}", worker_id));
  }
  const torpor::v1::WorkerInfo& known = it->second.info;
  *new_process = known.worker_uid().empty() || info.worker_uid() != known.worker_uid() ||
                 info.epoch() != known.epoch();
  std::string uid = known.worker_uid().empty() ? ids_->NewUuid() : known.worker_uid();
  info.set_worker_uid(uid);
  info.set_epoch(known.epoch() + (*new_process ? 1 : 0));
  if (info.name().empty()) info.set_name(worker_id);
  std::map<std::string, WorkerSlot> next = slots_;
  next[worker_id].info = info;
  if (*new_process) RETURN_IF_ERROR(Store(next));
  slots_ = std::move(next);
  ++version_;
  changed_.SignalAll();
  torpor::v1::RegisterWorkerResponse response;
  response.set_worker_uid(info.worker_uid());
  response.set_epoch(info.epoch());
  return response;
}

void Workers::Refresh(Duration timeout) {
  for (const WorkerSlot& slot : All()) {
    auto answer = slot.client->GetInfo(timeout);
    bool same = answer.ok() && answer->worker_uid() == slot.info.worker_uid() &&
                answer->epoch() == slot.info.epoch();
    MutexLock lock(&mu_);
    torpor::v1::WorkerInfo& info = slots_[slot.worker_id].info;
    if (info.epoch() != slot.info.epoch()) continue;  // it registered anew meanwhile
    const bool was_ready = info.ready();
    // A process that has not registered yet has no say in this slot.
    if (same) {
      std::string name = info.name();
      info = *std::move(answer);
      if (info.name().empty()) info.set_name(name.empty() ? slot.worker_id : name);
    } else {
      info.set_ready(false);
    }
    if (info.ready() != was_ready) {
      ++version_;
      changed_.SignalAll();
    }
  }
}

StatusOr<WorkerSlot> Workers::Find(const std::string& worker_uid, int64_t epoch) const {
  MutexLock lock(&mu_);
  for (const auto& [id, slot] : slots_) {
    if (worker_uid.empty() || slot.info.worker_uid() != worker_uid) continue;
    if (epoch > 0 && slot.info.epoch() != epoch) {
      return Fail(reasons::kWorkerRestarted,
                  fmt::format("worker {} is in epoch {}, not {}", id, slot.info.epoch(), epoch));
    }
    return slot;
  }
  return Fail(reasons::kWorkerNotFound, "this node has no such worker", {{"worker", worker_uid}});
}

StatusOr<WorkerSlot> Workers::FindById(const std::string& worker_id) const {
  MutexLock lock(&mu_);
  auto it = slots_.find(worker_id);
  if (it != slots_.end()) return it->second;
  return Fail(reasons::kWorkerNotFound, fmt::format("no worker slot {}", worker_id));
}

std::vector<std::string> Workers::Ids() const {
  MutexLock lock(&mu_);
  std::vector<std::string> out;
  for (const auto& [id, slot] : slots_) out.push_back(id);
  return out;
}

std::vector<WorkerSlot> Workers::All() const {
  MutexLock lock(&mu_);
  std::vector<WorkerSlot> out;
  for (const auto& [id, slot] : slots_) {
    if (!slot.info.worker_uid().empty()) out.push_back(slot);
  }
  return out;
}

std::vector<torpor::v1::WorkerInfo> Workers::Infos() const {
  std::vector<torpor::v1::WorkerInfo> out;
  for (WorkerSlot& slot : All()) out.push_back(std::move(slot.info));
  return out;
}

bool Workers::AllReady() const {
  for (const WorkerSlot& slot : All()) {
    if (!slot.info.ready()) return false;
  }
  return true;
}

uint64_t Workers::version() const {
  MutexLock lock(&mu_);
  return version_;
}

void Workers::WaitForChange(uint64_t seen, MonotonicTime deadline) {
  MutexLock lock(&mu_);
  while (version_ <= seen) {
    if (!changed_.WaitUntil(&mu_, deadline)) return;
  }
}

void Workers::Interrupt() {
  MutexLock lock(&mu_);
  ++version_;
  changed_.SignalAll();
}

}  // namespace torpor::agent
