#include "agent/core.h"

#include "base/log.h"

namespace torpor::agent {

void Residents::Set(const torpor::v1::Resident& resident) {
  MutexLock lock(&mu_);
  residents_[resident.actor_uid()] = resident;
}

void Residents::Erase(const std::string& actor_uid) {
  MutexLock lock(&mu_);
  residents_.erase(actor_uid);
}

void Residents::EraseWorker(const std::string& worker_uid) {
  MutexLock lock(&mu_);
  std::erase_if(residents_,
                [&](const auto& item) { return item.second.worker_uid() == worker_uid; });
}

std::optional<torpor::v1::Resident> Residents::Get(const std::string& actor_uid) const {
  MutexLock lock(&mu_);
  auto it = residents_.find(actor_uid);
  if (it == residents_.end()) return std::nullopt;
  return it->second;
}

std::vector<torpor::v1::Resident> Residents::All() const {
  MutexLock lock(&mu_);
  std::vector<torpor::v1::Resident> out;
  for (const auto& [uid, resident] : residents_) out.push_back(resident);
  return out;
}

void Uploads::Add(const Upload& upload) {
  MutexLock lock(&mu_);
  uploads_[upload.op_id] = upload;
}

void Uploads::Remove(const std::string& op_id) {
  MutexLock lock(&mu_);
  uploads_.erase(op_id);
}

std::vector<Uploads::Upload> Uploads::Of(const std::string& actor_uid) const {
  MutexLock lock(&mu_);
  std::vector<Upload> out;
  for (const auto& [id, upload] : uploads_) {
    if (upload.actor_uid == actor_uid) out.push_back(upload);
  }
  return out;
}

void SweepLater(const Core& core, const std::string& actor_uid) {
  core.janitor->Run([dirs = core.dirs, actor_uid] {
    Status status = dirs->SweepActor(actor_uid);
    if (!status.ok()) {
      LogWarning("removal is not complete and will be tried again at the next start",
                 {{"actor", actor_uid}, {"error", std::string(status.message())}});
    }
  });
}

Status FailedPhase(Op& op, std::string_view name, double start_ms, Status status) {
  torpor::v1::Phase phase;
  phase.set_name(std::string(name));
  phase.set_component("node");
  phase.set_start_ms(start_ms);
  phase.set_duration_ms(op.phases()->ElapsedMs() - start_ms);
  phase.set_error_reason(ReasonOf(status));
  op.phases()->Add(std::move(phase));
  return status;
}

Status StopInWorker(const Core& core, const std::string& actor_uid, const std::string& worker_uid,
                    const torpor::v1::OpHeader& header, Duration grace, MonotonicTime deadline) {
  auto worker = core.workers->Find(worker_uid);
  if (!worker.ok()) return OkStatus();
  torpor::v1::StopWorkloadRequest request;
  *request.mutable_op() = header;
  request.mutable_op()->set_actor_uid(actor_uid);
  *request.mutable_op()->mutable_timeout() =
      ToProto(std::max(Duration(0), deadline - core.clock->Now()));
  *request.mutable_dirs() = NodeDirs::ToMessage(actor_uid);
  *request.mutable_grace() = ToProto(grace);
  auto stopped = CallUntilKnown(
      request.op(), deadline, core.clock,
      [&](Duration timeout) { return worker->client->StopWorkload(request, timeout); },
      [&](const torpor::v1::GetOperationRequest& get, Duration timeout) {
        return worker->client->GetOperation(get, timeout);
      },
      core.unreachable_max);
  if (!stopped.ok()) {
    // A newer process in the slot has removed what its predecessor left before it registered.
    auto now = core.workers->Find(worker_uid);
    if (now.ok() && now->info.epoch() == worker->info.epoch()) return stopped.status();
    return OkStatus();
  }
  return OutcomeStatus(*stopped);
}

}  // namespace torpor::agent
