#include <fmt/format.h>

#include "agent/steps.h"
#include "base/log.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;

// Ends whatever reads the snapshot, then removes it.
Status DeleteSnapshot(const Core& core, Op& op, const std::string& name) {
  for (const Uploads::Upload& upload : core.uploads->Of(op.actor_uid())) {
    if (upload.snapshot_name != name) continue;
    torpor::v1::CancelOperationRequest cancel;
    cancel.set_op_id(upload.op_id);
    (void)core.mover->CancelOperation(cancel, std::chrono::seconds(5)).ok();
  }
  core.snapshots->WaitUnpinned(op.actor_uid(), name, op.deadline());
  return core.snapshots->Delete(op.actor_uid(), name, core.clock->WallNow());
}

Status DeleteAllSnapshots(const Core& core, Op& op) {
  auto entries = core.dirs->root().List(NodeDirs::ActorPath(op.actor_uid(), kLocalDir));
  if (entries.status().code() == Code::kNotFound) return OkStatus();
  RETURN_IF_ERROR(entries.status());
  for (const os::DirEntry& entry : *entries) {
    if (entry.name.rfind(".rm-", 0) == 0) continue;
    RETURN_IF_ERROR(DeleteSnapshot(core, op, entry.name));
  }
  return OkStatus();
}

}  // namespace

Status RunStop(const Core& core, Op& op, const torpor::v1::StopActorRequest& request,
               Operation* outcome) {
  (void)outcome;  // success says everything
  const std::string& uid = op.actor_uid();
  RETURN_IF_ERROR(op.Step("STOP", /*may_stop=*/true));
  std::vector<std::string> worker_uids;
  if (!request.worker_uid().empty()) worker_uids.push_back(request.worker_uid());
  // Also where we know it to be, if the caller does not.
  auto resident = core.residents->Get(uid);
  if (resident && resident->worker_uid() != request.worker_uid()) {
    worker_uids.push_back(resident->worker_uid());
  }
  for (const std::string& worker_uid : worker_uids) {
    torpor::v1::OpHeader header = request.op();
    header.set_op_id(DeriveOpId(op.id(), worker_uid));
    RETURN_IF_ERROR(
        StopInWorker(core, uid, worker_uid, header, FromProto(request.grace()), op.deadline()));
  }
  core.residents->Erase(uid);
  if (!core.dirs->OpenActor(uid).ok()) return OkStatus();
  RETURN_IF_ERROR(op.Step("RESET", /*may_stop=*/false));
  RETURN_IF_ERROR(core.dirs->Reset(uid, core.clock->WallNow()));
  if (request.delete_local_snapshots()) {
    RETURN_IF_ERROR(op.Step("DELETE", /*may_stop=*/false));
    RETURN_IF_ERROR(DeleteAllSnapshots(core, op));
    RETURN_IF_ERROR(core.dirs->RetireActor(uid, core.clock->WallNow()));
    core.janitor->Run([dirs = core.dirs] {
      Status status = dirs->SweepAll();
      if (!status.ok()) LogWarning("sweep", {{"error", std::string(status.message())}});
    });
    return OkStatus();
  }
  SweepLater(core, uid);
  return OkStatus();
}

Status RunDeleteLocal(const Core& core, Op& op,
                      const torpor::v1::DeleteLocalSnapshotsRequest& request, Operation* outcome) {
  (void)outcome;
  RETURN_IF_ERROR(op.Step("DELETE", /*may_stop=*/true));
  if (request.all()) RETURN_IF_ERROR(DeleteAllSnapshots(core, op));
  for (const std::string& name : request.snapshot_names()) {
    RETURN_IF_ERROR(DeleteSnapshot(core, op, name));
  }
  SweepLater(core, op.actor_uid());
  return OkStatus();
}

}  // namespace torpor::agent
