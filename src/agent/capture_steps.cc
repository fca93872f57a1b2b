#include <fmt/format.h>

#include "agent/steps.h"
#include "base/log.h"
#include "model/reasons.h"
#include "os/fs/usage.h"

namespace torpor::agent {
namespace {

using torpor::v1::CaptureActorRequest;
using torpor::v1::Operation;

// Resident memory as the worker measures it, else the limit the actor was started with.
int64_t ResidentBytes(const Core& core, const WorkerSlot& worker,
                      const CaptureActorRequest& request) {
  if (request.fidelity() < torpor::v1::FIDELITY_MEMORY) return 0;
  torpor::v1::GetWorkloadStatsRequest ask;
  ask.add_actor_uids(request.actor().uid());
  auto stats = worker.client->GetWorkloadStats(ask, std::chrono::seconds(2));
  if (stats.ok() && stats->stats_size() == 1) return stats->stats(0).memory_current_bytes();
  auto record = core.dirs->ReadRunning(request.actor().uid());
  return record.ok() ? record->memory_bytes() : 0;
}

// The guest may still write; a little more than it has now is part of every reservation.
int64_t VolumeBytes(const os::DirFd& actor) {
  constexpr int64_t kHeaderBytes = 2048;  // of an entry in the archive
  auto usage = os::MeasureTree(actor, kDurableDir);
  return usage.ok() ? usage->bytes + usage->inodes * kHeaderBytes : 0;
}

// Steps 1 to 3 of node.md 4.4: the guest is untouched whatever fails here.
Status PrepareCapture(const Core& core, Op& op, const CaptureActorRequest& request,
                      const WorkerSlot& worker, std::optional<Reservations::Hold>* hold) {
  const std::string& uid = request.actor().uid();
  RETURN_IF_ERROR(op.Step("RESERVE", /*may_stop=*/true));
  ASSIGN_OR_RETURN(os::DirFd actor, core.dirs->OpenActor(uid));
  auto reserved = core.reservations->Reserve(
      actor, core.dirs->path(),
      CaptureNeed(ResidentBytes(core, worker, request), VolumeBytes(actor)));
  RETURN_IF_ERROR(reserved.status());
  hold->emplace(std::move(*reserved));
  if (actor.Exists(fmt::format("{}/{}", kLocalDir, request.snapshot_name()))) {
    return Error(Code::kAlreadyExists, "ALREADY_EXISTS",
                 fmt::format("there is a snapshot {} already", request.snapshot_name()));
  }
  RETURN_IF_ERROR(op.Step("MKDIR", /*may_stop=*/true));
  RETURN_IF_ERROR(core.dirs->FreshCapture(uid, core.clock->WallNow()));
  RETURN_IF_ERROR(core.dirs->SetAside(uid));
  return op.Step("INTENT", /*may_stop=*/true);
}

// The worker ended the capture with an error: its metadata say what became of the guest.
Status CaptureFailed(const Core& core, const std::string& uid, Status status) {
  ErrorMetadata metadata = MetadataOf(status);
  auto it = metadata.find(kGuestAlive);
  bool alive = it != metadata.end() && it->second == "true";
  if (!alive) core.residents->Erase(uid);
  core.dirs->GiveBack(uid);
  (void)core.dirs->DropCapture(uid, core.clock->WallNow()).ok();  // RESET finds it otherwise
  return WithGuest(std::move(status), alive);
}

// No outcome from the worker. Alive counts only if it still lists the actor; whoever cannot be
// asked proves nothing.
Status CaptureLost(const Core& core, const std::string& uid, const WorkerSlot& worker,
                   Status status) {
  bool alive = false;
  auto list = worker.client->ListWorkloads(std::chrono::seconds(5));
  if (list.ok()) {
    for (const auto& resident : list->residents()) alive |= resident.actor_uid() == uid;
  }
  // Not accepted at all (for example WORKER_NOT_FOUND, INVALID_ARGUMENT) and still listed: it runs.
  alive = alive && !IsUnknownOutcome(status);
  if (!list.ok() || IsUnknownOutcome(status)) {
    status = Fail(reasons::kWorkerRestarted, fmt::format("the worker ended during the capture: {}",
                                                         std::string(status.message())));
  }
  return CaptureFailed(core, uid, WithGuest(std::move(status), alive));
}

// Uploads of older generations: the newer one makes them worthless.
void CancelOlderUploads(const Core& core, const std::string& uid, int64_t generation) {
  for (const Uploads::Upload& upload : core.uploads->Of(uid)) {
    if (upload.snapshot_generation >= generation) continue;
    torpor::v1::CancelOperationRequest cancel;
    cancel.set_op_id(upload.op_id);
    (void)core.mover->CancelOperation(cancel, std::chrono::seconds(5)).ok();
  }
}

void NoteStep(Op& op, const char* step) {
  Status status = op.Step(step, /*may_stop=*/false);
  if (status.ok()) return;
  LogWarning("a step of a capture is not in the journal",
             {{"op", op.id()}, {"step", step}, {"error", std::string(status.message())}});
}

// Only the volumes of an actor that has none are nothing.
bool MustHaveFiles(const Core& core, const CaptureActorRequest& request) {
  if (request.fidelity() != torpor::v1::FIDELITY_VOLUMES) return true;
  auto record = core.dirs->ReadRunning(request.actor().uid());
  return record.ok() && record->has_volumes();
}

snapshot::Manifest BuildManifest(const Core& core, const Op& op, const CaptureActorRequest& request,
                                 const torpor::v1::CaptureResult& captured,
                                 std::vector<torpor::v1::SnapshotFile> files) {
  snapshot::Manifest manifest;
  manifest.actor = request.actor();
  manifest.meta = captured.meta();
  manifest.meta.set_generation(op.generation());
  manifest.meta.set_fidelity(request.fidelity());
  if (!manifest.meta.has_capture_time()) {
    *manifest.meta.mutable_capture_time() = ToProto(core.clock->WallNow());
  }
  for (torpor::v1::SnapshotFile& file : files)
    manifest.files.push_back({std::move(file), 0440, {}});
  auto record = core.dirs->ReadRunning(request.actor().uid());
  if (record.ok()) {
    manifest.image_digests.insert(record->image_digests().begin(), record->image_digests().end());
  }
  return manifest;
}

}  // namespace

Status WithGuest(Status status, bool alive) {
  const std::string reason = ReasonOf(status);
  const bool crash = status.code() == Code::kDataLoss ||
                     (status.code() == Code::kInternal && IsCrashReason(reason));
  const bool misleading = alive ? crash || status.code() == Code::kNotFound : !crash;
  if (misleading) {
    status = Fail(alive ? reasons::kInternal : reasons::kRuntimeFailed,
                  std::string(status.message()), MetadataOf(status));
    if (!reason.empty()) AddMetadata(status, "cause", reason);
  }
  AddMetadata(status, kGuestAlive, alive ? "true" : "false");
  return status;
}

Status RunCapture(const Core& core, Op& op, const CaptureActorRequest& request,
                  Operation* outcome) {
  const std::string& uid = request.actor().uid();
  auto worker = core.workers->Find(request.worker_uid());
  // A slot that is unknown here holds nothing of ours.
  if (!worker.ok()) return WithGuest(worker.status(), false);
  std::optional<Reservations::Hold> hold;
  Status status = PrepareCapture(core, op, request, *worker, &hold);
  if (!status.ok()) return WithGuest(std::move(status), core.residents->Get(uid).has_value());

  torpor::v1::CaptureWorkloadRequest capture;
  *capture.mutable_op() = request.op();
  *capture.mutable_op()->mutable_timeout() = ToProto(op.TimeLeft());
  *capture.mutable_dirs() = NodeDirs::ToMessage(uid);
  capture.set_fidelity(request.fidelity());
  capture.set_leave_running(request.leave_running());
  capture.set_reason(request.reason());
  if (request.has_drain_grace()) *capture.mutable_drain_grace() = request.drain_grace();
  if (request.has_drain_max()) *capture.mutable_drain_max() = request.drain_max();
  capture.set_refuse_if_busy(request.refuse_if_busy());
  double offset = op.phases()->ElapsedMs();
  auto operation = CallUntilKnown(
      capture.op(), op.deadline(), core.clock,
      [&](Duration timeout) { return worker->client->CaptureWorkload(capture, timeout); },
      [&](const torpor::v1::GetOperationRequest& get, Duration timeout) {
        return worker->client->GetOperation(get, timeout);
      },
      core.unreachable_max);
  if (!operation.ok()) return CaptureLost(core, uid, *worker, operation.status());
  op.phases()->AddAll(operation->phases(), offset);
  status = OutcomeStatus(*operation);
  if (!status.ok()) return CaptureFailed(core, uid, std::move(status));
  status = FinishCapture(core, op, request, operation->capture(), outcome);
  SweepLater(core, uid);
  return status;
}

Status FinishCapture(const Core& core, Op& op, const CaptureActorRequest& request,
                     const torpor::v1::CaptureResult& captured, Operation* outcome) {
  const std::string& uid = request.actor().uid();
  if (!request.leave_running()) core.residents->Erase(uid);
  PhaseRecorder::Scope phase(op.phases(), "commit");
  // No deadline and no newer generation ends it now: what was captured is kept. Nor does a journal
  // that cannot be written: after INTENT a next agent finds the way from the directories.
  NoteStep(op, "CHECK");
  auto files = core.snapshots->CheckCapture(uid, captured.files());
  if (files.ok() && files->empty() && MustHaveFiles(core, request)) {
    files = Fail(reasons::kInvalidCheckpointResult, "the capture holds no file");
  }
  if (!files.ok()) return phase.Fail(WithGuest(files.status(), request.leave_running()));
  NoteStep(op, "COMMIT");
  snapshot::Manifest manifest = BuildManifest(core, op, request, captured, *std::move(files));
  core.dirs->GiveBack(uid);
  Status status = core.snapshots->Commit(uid, request.snapshot_name(), manifest);
  if (!status.ok()) return phase.Fail(WithGuest(std::move(status), request.leave_running()));
  return ReportCommitted(core, request, manifest, outcome);
}

Status ReportCommitted(const Core& core, const CaptureActorRequest& request,
                       const snapshot::Manifest& manifest, Operation* outcome) {
  torpor::v1::CaptureResult* result = outcome->mutable_capture();
  result->set_snapshot_name(request.snapshot_name());
  result->set_fidelity(manifest.meta.fidelity());
  *result->mutable_meta() = manifest.meta;
  for (const snapshot::ManifestFile& file : manifest.files) *result->add_files() = file.file;
  result->set_left_running(request.leave_running());
  int64_t bytes = 0;
  for (const snapshot::ManifestFile& file : manifest.files) bytes += file.file.populated_bytes();
  const bool microvm = manifest.meta.sandbox_class() == ateapi::SANDBOX_CLASS_MICROVM;
  core.metrics.snapshot_bytes.Observe({microvm ? "microvm" : "gvisor"}, static_cast<double>(bytes));
  CancelOlderUploads(core, request.actor().uid(), manifest.meta.generation());
  return OkStatus();
}

}  // namespace torpor::agent
