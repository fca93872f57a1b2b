// The operations pause and suspend: capture on the node, then, for a suspend, the upload. The
// worker is free and the actor resumable on its node as soon as the local generation is complete.

#include <algorithm>

#include "base/log.h"
#include "control/core/step_run.h"
#include "model/reasons.h"
#include "snapshot/format/layout.h"

namespace torpor::control::core {
namespace {

constexpr Duration kUploadBackoffMax = std::chrono::seconds(60);
// Requests in flight get this long when their node is drained, or longer by the template.
constexpr Duration kNodeDrainGrace = std::chrono::seconds(30);

torpor::v1::CaptureReason ReasonFor(const std::string& trigger) {
  if (trigger == "idle") return torpor::v1::CAPTURE_REASON_IDLE;
  if (trigger == "pressure") return torpor::v1::CAPTURE_REASON_PRESSURE;
  if (trigger == "drain") return torpor::v1::CAPTURE_REASON_DRAIN;
  if (trigger == "fork") return torpor::v1::CAPTURE_REASON_FORK;
  if (trigger == "golden") return torpor::v1::CAPTURE_REASON_GOLDEN;
  return torpor::v1::CAPTURE_REASON_API;
}

torpor::v1::SnapshotStorage& AddStorage(torpor::v1::GenerationRecord& generation,
                                        torpor::v1::Durability durability,
                                        torpor::v1::Fidelity fidelity) {
  torpor::v1::SnapshotStorage& storage = *generation.mutable_generation()->add_storages();
  storage.set_durability(durability);
  storage.set_status(torpor::v1::STORAGE_STATUS_IN_PROGRESS);
  storage.set_fidelity(fidelity);
  return storage;
}

bool IsCache(const torpor::v1::GenerationRecord& generation, const std::string& node) {
  const auto* local = FindStorage(generation, torpor::v1::DURABILITY_LOCAL);
  return IsComplete(local) && local->node_name() == node &&
         IsComplete(FindStorage(generation, torpor::v1::DURABILITY_DURABLE));
}

}  // namespace

bool HasCache(const torpor::v1::ActorRecord& record, const std::string& node_name) {
  // An operation may be reading it.
  return !record.has_operation() &&
         std::any_of(record.generations().begin(), record.generations().end(),
                     [&](const auto& generation) { return IsCache(generation, node_name); });
}

void StepRun::On(const CacheUnwanted& event) {
  if (!HasCache(record_, event.node_name)) return;
  std::vector<std::string> names;
  for (torpor::v1::GenerationRecord& generation : *record_.mutable_generations()) {
    if (!IsCache(generation, event.node_name)) continue;
    names.push_back(FindStorage(generation, torpor::v1::DURABILITY_LOCAL)->snapshot_name());
    RemoveStorage(generation, torpor::v1::DURABILITY_LOCAL);
  }
  GarbageLocal(event.node_name, names);
  change_.dirty = true;
}

Status StepRun::CheckFidelity(torpor::v1::Fidelity& fidelity) const {
  if (fidelity == torpor::v1::FIDELITY_UNSPECIFIED) {
    fidelity = record_.capture_fidelity();
    if (fidelity == torpor::v1::FIDELITY_UNSPECIFIED) fidelity = torpor::v1::FIDELITY_MEMORY;
  }
  bool gvisor = context_.tmpl == nullptr ||
                context_.tmpl->actor_template().sandbox_config().sandbox_class() ==
                    ateapi::SANDBOX_CLASS_GVISOR;
  if (fidelity == torpor::v1::FIDELITY_ROOTFS && gvisor) {
    return Fail(reasons::kFidelityUnsupported,
                "gVisor captures VOLUMES or MEMORY, not the root filesystem alone");
  }
  return OkStatus();
}

void StepRun::StartCapture(const StartVerb& event) {
  torpor::v1::Fidelity fidelity = event.fidelity;
  change_.status = CheckFidelity(fidelity);
  if (!change_.status.ok()) return;
  if (event.stamp != WallTime{} && context_.last_active > event.stamp) {
    change_.status = Fail(reasons::kActorBusy, "the actor was used since it was found idle");
    return;
  }
  ateapi::ActorStatus& status = *record_.mutable_actor()->mutable_status();
  status.set_generation(status.generation() + 1);
  bool pause = event.verb == torpor::v1::VERB_PAUSE;
  Duration grace = FromProto(record_.drain_grace());
  if (event.trigger == "drain") grace = std::max(grace, kNodeDrainGrace);
  const Duration wait = grace;
  grace = std::max(grace, FromProto(record_.drain_max()));
  Duration timeout = context_.settings->capture_timeout + grace;
  torpor::v1::ActorOperation& operation =
      Begin(event.verb, pause ? ateapi::ACTOR_STATE_PAUSING : ateapi::ACTOR_STATE_SUSPENDING,
            event.trigger, torpor::v1::OPERATION_STEP_CHECKPOINT, timeout, event.asked);
  OpenLeg("mark", FromProto(operation.start_time()));
  operation.set_fidelity(fidelity);
  if (event.stamp != WallTime{}) *operation.mutable_activity_stamp() = ToProto(event.stamp);
  operation.set_worker_name(status.worker_assignment().worker_pod());

  torpor::v1::GenerationRecord& generation = *record_.add_generations();
  generation.mutable_generation()->set_generation(status.generation());
  generation.mutable_generation()->set_owner(torpor::v1::SNAPSHOT_OWNER_ACTOR);
  generation.mutable_generation()->set_actor_template_uid(record_.active_template_uid());
  *generation.mutable_generation()->mutable_create_time() = ToProto(context_.now);
  generation.mutable_generation()->set_verb(event.verb);
  generation.mutable_generation()->set_trigger(event.trigger);
  torpor::v1::SnapshotStorage& local =
      AddStorage(generation, torpor::v1::DURABILITY_LOCAL, fidelity);
  local.set_node_name(record_.binding().node_name());
  local.set_snapshot_name(context_.ids->NewUuid());

  torpor::v1::NodeCall call;
  torpor::v1::CaptureActorRequest& capture = *call.mutable_capture();
  *capture.mutable_actor() = Identity(record_, record_.active_template_uid());
  capture.set_worker_uid(record_.binding().worker_uid());
  capture.set_fidelity(fidelity);
  capture.set_snapshot_name(local.snapshot_name());
  capture.set_reason(ReasonFor(event.trigger));
  if (wait > Duration::zero()) *capture.mutable_drain_grace() = ToProto(wait);
  if (record_.drain_max().ByteSizeLong() > 0) {
    *capture.mutable_drain_max() = record_.drain_max();
  }
  capture.set_refuse_if_busy(event.trigger == "idle" || event.trigger == "pressure");
  SendOperationCall(NewCall(std::move(call), record_.binding().node_name(), timeout));
}

void StepRun::CaptureAnswered(const CallOutcome& outcome) {
  const int64_t number = record_.operation().generation();
  torpor::v1::GenerationRecord* generation = FindGeneration(record_, number);
  CHECK(generation != nullptr);
  if (outcome.state == CallState::kFailed) {
    RemoveStorage(*generation, torpor::v1::DURABILITY_LOCAL);
    DropGenerationsWithoutStorage();
    Status error = outcome.error;
    // A node that does not know the sandbox cannot prove that it is alive.
    bool unknown = error.code() == Code::kNotFound;
    if (unknown || Judge(error) == Verdict::kCrash) {
      std::string reason = ReasonOf(error);
      Crash(IsCrashReason(reason) ? reason : reasons::kUnknown.name, std::string(error.message()),
            Code::kInternal);
      return;
    }
    *record_.mutable_actor()->mutable_status()->mutable_last_active_time() = ToProto(context_.now);
    SetState(ateapi::ACTOR_STATE_RUNNING);
    End(error);
    return;
  }
  const torpor::v1::CaptureResult& result = outcome.operation.capture();
  torpor::v1::SnapshotStorage& local = *FindStorage(*generation, torpor::v1::DURABILITY_LOCAL);
  local.set_status(torpor::v1::STORAGE_STATUS_COMPLETED);
  if (result.fidelity() != torpor::v1::FIDELITY_UNSPECIFIED) local.set_fidelity(result.fidelity());
  if (local.fidelity() == torpor::v1::FIDELITY_MEMORY) NoteCpu(result.meta(), *generation);
  int64_t logical = 0;
  int64_t populated = 0;
  for (const torpor::v1::SnapshotFile& file : result.files()) {
    logical += file.logical_bytes();
    populated += file.populated_bytes();
  }
  local.set_logical_bytes(logical);
  local.set_stored_bytes(populated);
  ReleaseWorker();
  if (record_.operation().verb() == torpor::v1::VERB_PAUSE) {
    const WallTime released = Time();
    AddLeg("release", received_, released);
    PruneLocal(number);
    SetState(ateapi::ACTOR_STATE_PAUSED);
    AddLeg("finalize", released, Time());
    End(OkStatus());
    return;
  }
  PruneLocal(number);
  SetStep(torpor::v1::OPERATION_STEP_UPLOAD);
  OpenLeg("release", received_);
  BeginUpload();
}

// A program chooses its instructions when it starts, so its memory runs only where it finds them.
void StepRun::NoteCpu(const torpor::v1::SnapshotMeta& meta,
                      torpor::v1::GenerationRecord& generation) {
  torpor::v1::CpuFeatures cpu = CpuOf(meta);
  const std::string id = CpuId(cpu);
  if (id.empty()) return;
  generation.set_cpu_id(id);
  change_.cpus[id] = std::move(cpu);
}

void StepRun::SuspendPaused(const StartVerb& event) {
  const torpor::v1::GenerationRecord* current = Current(record_);
  const auto* local =
      current == nullptr ? nullptr : FindStorage(*current, torpor::v1::DURABILITY_LOCAL);
  if (!IsComplete(local)) {
    change_.status = Fail(reasons::kLocalSnapshotGone, "the paused actor has no local snapshot");
    return;
  }
  torpor::v1::Fidelity fidelity = event.fidelity;
  if (fidelity == torpor::v1::FIDELITY_UNSPECIFIED) fidelity = local->fidelity();
  change_.status = CheckFidelity(fidelity);
  if (!change_.status.ok()) return;
  if (fidelity > local->fidelity()) {
    change_.status = Fail(
        reasons::kFidelityNotCaptured,
        fmt::format("the pause captured {} only", torpor::v1::Fidelity_Name(local->fidelity())));
    return;
  }
  if (!context_.cluster->NodeAlive(local->node_name())) {
    change_.status =
        Fail(reasons::kNodeUnreachable,
             fmt::format("node {}, which holds the snapshot, does not answer", local->node_name()),
             {{"node", local->node_name()}});
    return;
  }
  const int64_t number = current->generation().generation();
  torpor::v1::ActorOperation& operation =
      Begin(torpor::v1::VERB_SUSPEND, ateapi::ACTOR_STATE_SUSPENDING, event.trigger,
            torpor::v1::OPERATION_STEP_UPLOAD, context_.settings->upload_timeout, event.asked);
  OpenLeg("mark", FromProto(operation.start_time()));
  operation.set_generation(number);
  operation.set_fidelity(fidelity);
  // An upload of an overtaken suspend may still be under way, or have ended.
  if (IsComplete(FindStorage(*current, torpor::v1::DURABILITY_DURABLE))) {
    FinishSuspend();
    return;
  }
  for (int i = 0; i < record_.uploads_size(); ++i) {
    if (record_.uploads(i).generation() != number) continue;
    *operation.mutable_call() = record_.uploads(i).call();
    operation.set_node_name(operation.call().node_name());
    record_.mutable_uploads()->erase(record_.uploads().begin() + i);
    return;
  }
  BeginUpload();
}

void StepRun::BeginUpload() {
  torpor::v1::GenerationRecord* generation =
      FindGeneration(record_, record_.operation().generation());
  CHECK(generation != nullptr);
  const torpor::v1::SnapshotStorage* local = FindStorage(*generation, torpor::v1::DURABILITY_LOCAL);
  if (!IsComplete(local)) {
    Crash(reasons::kLocalSnapshotGone.name, "the local snapshot is gone before it was uploaded",
          Code::kDataLoss);
    return;
  }
  const std::string node = local->node_name();
  const std::string name = local->snapshot_name();
  const torpor::v1::Fidelity fidelity =
      record_.operation().fidelity() == torpor::v1::FIDELITY_UNSPECIFIED
          ? local->fidelity()
          : std::min(record_.operation().fidelity(), local->fidelity());
  torpor::v1::SnapshotStorage* durable = FindStorage(*generation, torpor::v1::DURABILITY_DURABLE);
  if (durable == nullptr) {
    // Minted once: every retry writes to the same place.
    durable = &AddStorage(*generation, torpor::v1::DURABILITY_DURABLE, fidelity);
    const ateapi::ResourceMetadata& metadata = record_.actor().metadata();
    durable->set_uri(snapshot::ActorSnapshotUri(record_.storage_location(), metadata.atespace(),
                                                metadata.uid(), context_.ids->NewUuid()));
  }
  torpor::v1::NodeCall call;
  torpor::v1::UploadSnapshotRequest& upload = *call.mutable_upload();
  *upload.mutable_actor() = Identity(record_, generation->generation().actor_template_uid());
  upload.set_snapshot_name(name);
  upload.set_uri(durable->uri());
  upload.set_fidelity(fidelity);
  SendOperationCall(NewCall(std::move(call), node, context_.settings->upload_timeout));
}

void StepRun::UploadAnswered(const CallOutcome& outcome) {
  const int64_t number = record_.operation().generation();
  if (outcome.state == CallState::kSucceeded) {
    CompleteUpload(number, outcome.operation.upload());
    AddLeg("prune", received_, Time());
    FinishSuspend();
    return;
  }
  const Status& error = outcome.error;
  if (ReasonOf(error) == reasons::kLocalSnapshotGone.name) {
    Crash(reasons::kLocalSnapshotGone.name, std::string(error.message()), Code::kDataLoss);
    return;
  }
  // The local generation is complete, so nothing is lost: try again until it works. What a retry
  // cannot repair is told to those who wait, and tried again because an operator may repair it.
  RetryLater(error, kUploadBackoffMax, Judge(error) != Verdict::kRetry);
}

// The local copy stays as a cache of the durable one, until a newer generation is complete.
void StepRun::FinishSuspend() {
  const WallTime from = Time();
  SetState(ateapi::ACTOR_STATE_SUSPENDED);
  AddLeg("finalize", from, Time());
  End(OkStatus());
}

void StepRun::CompleteUpload(int64_t number, const torpor::v1::UploadResult& result) {
  torpor::v1::GenerationRecord* generation = FindGeneration(record_, number);
  CHECK(generation != nullptr);
  torpor::v1::SnapshotStorage* durable = FindStorage(*generation, torpor::v1::DURABILITY_DURABLE);
  CHECK(durable != nullptr);
  if (!IsComplete(durable)) {
    durable->set_status(torpor::v1::STORAGE_STATUS_COMPLETED);
    durable->set_stored_bytes(result.stored_bytes());
    durable->set_logical_bytes(result.logical_bytes());
    if (result.fidelity() != torpor::v1::FIDELITY_UNSPECIFIED) {
      durable->set_fidelity(result.fidelity());
    }
    generation->set_manifest_sha256(result.manifest_sha256());
  }
  record_.clear_borrowed();
  PruneDurable();
  change_.dirty = true;
}

void StepRun::BackgroundUploadAnswered(int index, const CallOutcome& outcome) {
  torpor::v1::BackgroundUpload upload = record_.uploads(index);
  record_.mutable_uploads()->erase(record_.uploads().begin() + index);
  torpor::v1::GenerationRecord* generation = FindGeneration(record_, upload.generation());
  const torpor::v1::SnapshotStorage* durable =
      generation == nullptr ? nullptr : FindStorage(*generation, torpor::v1::DURABILITY_DURABLE);
  if (outcome.state == CallState::kSucceeded && durable != nullptr) {
    CompleteUpload(upload.generation(), outcome.operation.upload());
    return;
  }
  if (ReasonOf(outcome.error) == reasons::kStaleGeneration.name && durable != nullptr) {
    // The wake that overtook it was faster on its way to the node, too. Nothing has begun.
    torpor::v1::NodeCall& call = *upload.mutable_call();
    const int64_t highest = std::strtoll(MetadataOf(outcome.error)["highest"].c_str(), nullptr, 10);
    Renew(call, context_.ids->NewUuid(), context_.now);
    Header(call)->set_generation(std::max(record_.actor().status().generation(), highest));
    change_.sends.push_back({call, false, false});
    *record_.add_uploads() = std::move(upload);
    return;
  }
  DropUpload(upload.generation(), nullptr);
}

void StepRun::DropUpload(int64_t number, const torpor::v1::NodeCall* call) {
  torpor::v1::GenerationRecord* generation = FindGeneration(record_, number);
  if (generation == nullptr) return;
  const torpor::v1::SnapshotStorage* durable =
      FindStorage(*generation, torpor::v1::DURABILITY_DURABLE);
  if (durable == nullptr || IsComplete(durable)) return;
  GarbageUri(durable->uri(), call);
  RemoveStorage(*generation, torpor::v1::DURABILITY_DURABLE);
  DropGenerationsWithoutStorage();
  change_.dirty = true;
}

void StepRun::PruneLocal(int64_t older_than) {
  std::map<std::string, std::vector<std::string>> names;
  for (torpor::v1::GenerationRecord& generation : *record_.mutable_generations()) {
    if (generation.generation().generation() >= older_than) continue;
    const auto* local = FindStorage(generation, torpor::v1::DURABILITY_LOCAL);
    if (local == nullptr) continue;
    names[local->node_name()].push_back(local->snapshot_name());
    RemoveStorage(generation, torpor::v1::DURABILITY_LOCAL);
  }
  for (const auto& [node, list] : names) GarbageLocal(node, list);
  DropGenerationsWithoutStorage();
}

void StepRun::PruneDurable() {
  int seen = 0;
  for (int i = record_.generations_size() - 1; i >= 0; --i) {
    torpor::v1::GenerationRecord& generation = *record_.mutable_generations(i);
    const auto* durable = FindStorage(generation, torpor::v1::DURABILITY_DURABLE);
    if (!IsComplete(durable)) continue;
    // A damaged one stays until there is a newer one that is not.
    if (generation.damaged() ? seen == 0 : ++seen <= 1 + record_.keep_generations()) continue;
    GarbageUri(durable->uri(), nullptr);
    RemoveStorage(generation, torpor::v1::DURABILITY_DURABLE);
  }
  DropGenerationsWithoutStorage();
}

void StepRun::DropGenerationsWithoutStorage() {
  auto* generations = record_.mutable_generations();
  generations->erase(std::remove_if(generations->begin(), generations->end(),
                                    [](const torpor::v1::GenerationRecord& generation) {
                                      return generation.generation().storages().empty();
                                    }),
                     generations->end());
  change_.dirty = true;
}

}  // namespace torpor::control::core
