#include <fmt/format.h>

#include "agent/steps.h"
#include "agent/workload.h"
#include "base/log.h"
#include "model/names.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;
using torpor::v1::SnapshotFile;
using torpor::v1::SnapshotSource;
using torpor::v1::StartActorRequest;

// What an attempt found out about its source.
struct Restore {
  std::vector<SnapshotFile> files;
  torpor::v1::Fidelity fidelity = torpor::v1::FIDELITY_UNSPECIFIED;  // unset = cold boot
  int64_t fetched_bytes = 0;
  int64_t cached_bytes = 0;
};

class StartAttempt {
 public:
  StartAttempt(const Core& core, Op& op, const StartActorRequest& request,
               const SnapshotSource* source, int number)
      : core_(core), op_(op), request_(request), source_(source), number_(number) {}

  Status Run(Operation* outcome) {
    ASSIGN_OR_RETURN(worker_, core_.workers->Find(request_.worker_uid(), request_.worker_epoch()));
    if (IsLocal()) {
      pin_.emplace(core_.snapshots, uid(), source_->local_name());
      RETURN_IF_ERROR(op_.Step("VERIFY", /*may_stop=*/true));
      RETURN_IF_ERROR(VerifyLocal());
    }
    RETURN_IF_ERROR(op_.Step("RESET", /*may_stop=*/true));
    RETURN_IF_ERROR(core_.dirs->Reset(uid(), core_.clock->WallNow()));
    Status status = PrepareAndStart(outcome);
    SweepLater(core_, uid());
    return status;
  }

 private:
  const std::string& uid() const { return request_.actor().uid(); }
  bool IsLocal() const { return source_ != nullptr && source_->has_local_name(); }
  // Whose snapshot it must be. Volumes outlive a change of the actor's template, memory does not.
  torpor::v1::ActorIdentity SourceIdentity() const {
    torpor::v1::ActorIdentity identity = request_.actor();
    if (request_.fidelity() == torpor::v1::FIDELITY_VOLUMES) identity.clear_template_uid();
    return identity;
  }
  bool IsDurable() const { return source_ != nullptr && source_->has_durable(); }

  Status VerifyLocal() {
    ASSIGN_OR_RETURN(
        snapshot::Manifest manifest,
        core_.snapshots->Verify(SourceIdentity(), source_->local_name(), source_->generation()));
    auto wanted = request_.fidelity() != torpor::v1::FIDELITY_UNSPECIFIED
                      ? request_.fidelity()
                      : manifest.meta.fidelity();
    ASSIGN_OR_RETURN(std::vector<snapshot::ManifestFile> files,
                     snapshot::NarrowFiles(manifest, wanted));
    for (const auto& file : files) restore_.files.push_back(file.file);
    restore_.fidelity = wanted;
    return OkStatus();
  }

  Status PrepareAndStart(Operation* outcome) {
    Status status = Prepare();
    if (status.ok()) status = Record();
    if (status.ok()) status = op_.Step("START", /*may_stop=*/true);
    if (!status.ok()) {
      CleanUp();
      return status;
    }
    return Start(outcome);
  }

  // All legs in parallel; the first error is the one that is reported, whatever follows from it.
  Status Prepare() {
    RETURN_IF_ERROR(op_.Step("PREPARE", /*may_stop=*/true));
    Mutex mu;
    Status first;
    auto run = [&](const std::function<Status()>& leg) {
      Status status = leg();
      MutexLock lock(&mu);
      if (!status.ok() && first.ok()) {
        first = std::move(status);
        if (IsDurable()) CancelFetch();
      }
    };
    std::vector<std::thread> legs;
    // The last leg runs here: a wake of a known image from LOCAL starts no thread at all.
    if (IsDurable()) legs.emplace_back([&] { run([this] { return Fetch(); }); });
    run([this] { return PrepareBundles(); });
    for (std::thread& leg : legs) leg.join();
    return first;
  }

  Status PrepareBundles() {
    PhaseRecorder::Scope phase(op_.phases(), "image");
    for (const std::string& reference : ImagesOf(request_.spec())) {
      auto image = core_.images->Ensure(reference, request_.actor(), op_.deadline());
      if (!image.ok()) return phase.Fail(image.status());
      images_[reference] = *std::move(image);
    }
    for (const auto& container : request_.spec().containers()) {
      digests_[container.name()] = images_[container.image()]->digest;
    }
    Status status = WriteBundles(*core_.dirs, request_, images_);
    return status.ok() ? status : phase.Fail(std::move(status));
  }

  std::string FetchOpId() const { return DeriveOpId(op_.id(), fmt::format("fetch{}", number_)); }

  void CancelFetch() {
    torpor::v1::CancelOperationRequest cancel;
    cancel.set_op_id(FetchOpId());
    (void)core_.mover->CancelOperation(cancel, std::chrono::seconds(5)).ok();
  }

  Status Fetch() {
    double offset = op_.phases()->ElapsedMs();
    torpor::v1::FetchRequest fetch;
    fetch.mutable_op()->set_op_id(FetchOpId());
    fetch.mutable_op()->set_actor_uid(uid());
    fetch.mutable_op()->set_generation(op_.generation());
    fetch.mutable_op()->set_traceparent(request_.op().traceparent());
    *fetch.mutable_op()->mutable_timeout() = ToProto(op_.TimeLeft());
    *fetch.mutable_actor() = SourceIdentity();
    *fetch.mutable_snapshot() = source_->durable();
    fetch.set_shared(source_->shared());
    fetch.set_fidelity(request_.fidelity());
    fetch.set_target_dir(NodeDirs::ActorPath(uid(), kRestoreDir));
    auto operation = CallUntilKnown(
        fetch.op(), op_.deadline(), core_.clock,
        [&](Duration timeout) { return core_.mover->Fetch(fetch, timeout); },
        [&](const torpor::v1::GetOperationRequest& get, Duration timeout) {
          return core_.mover->GetOperation(get, timeout);
        },
        core_.unreachable_max);
    if (!operation.ok()) return FailedPhase(op_, "fetch", offset, operation.status());
    op_.phases()->AddAll(operation->phases(), offset);
    RETURN_IF_ERROR(OutcomeStatus(*operation));
    return TakeFetched(operation->fetch());
  }

  // Names, types and sizes are checked by us, whatever the mover says.
  Status TakeFetched(const torpor::v1::FetchResult& result) {
    ASSIGN_OR_RETURN(os::DirFd dir,
                     core_.dirs->root().OpenDir(NodeDirs::ActorPath(uid(), kRestoreDir)));
    for (const SnapshotFile& file : result.files()) {
      auto stat = IsSnapshotFileName(file.name())
                      ? dir.Stat(file.name())
                      : StatusOr<struct stat>(ErrnoStatus(EINVAL, "file name"));
      if (!stat.ok() || !S_ISREG(stat->st_mode) || stat->st_size != file.logical_bytes()) {
        return Fail(reasons::kSnapshotCorrupt,
                    "a fetched file is missing, no regular file or not of its size");
      }
      restore_.files.push_back(file);
    }
    restore_.fidelity = request_.fidelity() != torpor::v1::FIDELITY_UNSPECIFIED
                            ? request_.fidelity()
                            : result.meta().fidelity();
    restore_.fetched_bytes = result.fetched_bytes();
    restore_.cached_bytes = result.cached_bytes();
    return OkStatus();
  }

  Status Record() {
    RETURN_IF_ERROR(op_.Step("RECORD", /*may_stop=*/true));
    torpor::v1::RunningRecord record;
    *record.mutable_actor() = request_.actor();
    record.set_generation(op_.generation());
    record.set_worker_uid(request_.worker_uid());
    record.set_worker_epoch(worker_.info.epoch());
    record.mutable_image_digests()->insert(digests_.begin(), digests_.end());
    record.set_memory_bytes(request_.spec().memory_bytes());
    for (const torpor::v1::VolumeSpec& volume : request_.spec().volumes()) {
      if (volume.has_durable_dir()) record.set_has_volumes(true);
    }
    *record.mutable_start_time() = ToProto(core_.clock->WallNow());
    return core_.dirs->WriteRunning(uid(), record);
  }

  torpor::v1::StartWorkloadRequest WorkerRequest() const {
    torpor::v1::StartWorkloadRequest start;
    *start.mutable_op() = request_.op();
    if (number_ > 0) {
      start.mutable_op()->set_op_id(DeriveOpId(op_.id(), fmt::format("start{}", number_)));
    }
    *start.mutable_op()->mutable_timeout() = ToProto(op_.TimeLeft());
    *start.mutable_actor() = request_.actor();
    *start.mutable_spec() = request_.spec();
    *start.mutable_dirs() = NodeDirs::ToMessage(uid());
    if (restore_.fidelity != torpor::v1::FIDELITY_UNSPECIFIED) {
      start.set_restore(restore_.fidelity);
      for (const SnapshotFile& file : restore_.files) *start.add_files() = file;
    }
    if (IsLocal()) {
      start.mutable_dirs()->set_restore(NodeDirs::LocalPath(uid(), source_->local_name()));
      start.set_preserve_restore(true);
    }
    return start;
  }

  Status Start(Operation* outcome) {
    const torpor::v1::StartWorkloadRequest start = WorkerRequest();
    double offset = op_.phases()->ElapsedMs();
    // From here until the outcome is known there may be a sandbox.
    torpor::v1::Resident resident;
    resident.set_actor_uid(uid());
    resident.set_generation(op_.generation());
    resident.set_worker_uid(request_.worker_uid());
    core_.residents->Set(resident);
    auto operation = CallUntilKnown(
        start.op(), op_.deadline(), core_.clock,
        [&](Duration timeout) { return worker_.client->StartWorkload(start, timeout); },
        [&](const torpor::v1::GetOperationRequest& get, Duration timeout) {
          return worker_.client->GetOperation(get, timeout);
        },
        core_.unreachable_max);
    if (!operation.ok()) return StartLost(operation.status());
    op_.phases()->AddAll(operation->phases(), offset);
    Status status = OutcomeStatus(*operation);
    if (!status.ok()) {
      core_.residents->Erase(uid());
      CleanUp();
      return status;
    }
    resident.set_address(operation->start().address());
    core_.residents->Set(resident);
    FillOutcome(operation->start(), outcome);
    return OkStatus();
  }

  // Nobody knows whether the sandbox lives: it is stopped before its directories are touched. When
  // even that is impossible it stays listed as resident, and the next start or stop begins there.
  Status StartLost(const Status& status) {
    torpor::v1::OpHeader header = request_.op();
    header.set_op_id(DeriveOpId(op_.id(), fmt::format("undo{}", number_)));
    Status stopped = StopInWorker(core_, uid(), request_.worker_uid(), header, Duration(0),
                                  core_.clock->Now() + std::chrono::seconds(30));
    if (stopped.ok()) {
      core_.residents->Erase(uid());
      CleanUp();
    }
    Status out = Annotate(status, "starting in the worker");
    // Unknown is told as the worse: the guest may have run.
    AddMetadata(out, kGuestRan, IsUnknownOutcome(status) ? "true" : "false");
    return out;
  }

  void FillOutcome(const torpor::v1::StartResult& started, Operation* outcome) const {
    torpor::v1::StartResult* result = outcome->mutable_start();
    *result = started;
    result->set_fidelity(restore_.fidelity);
    result->set_cold_boot(source_ == nullptr);
    result->set_fetched_bytes(restore_.fetched_bytes);
    result->set_cached_bytes(restore_.cached_bytes);
    if (source_ == nullptr) return;
    result->set_source_generation(source_->generation());
    result->set_source(IsLocal() ? torpor::v1::DURABILITY_LOCAL : torpor::v1::DURABILITY_DURABLE);
  }

  // At once, so that links in restore-state do not pin cache entries until the next call.
  void CleanUp() {
    Status status = core_.dirs->Reset(uid(), core_.clock->WallNow());
    if (!status.ok()) {
      LogWarning("reset after a failed start",
                 {{"actor", uid()}, {"error", std::string(status.message())}});
    }
  }

  const Core& core_;
  Op& op_;
  const StartActorRequest& request_;
  const SnapshotSource* const source_;  // null = cold boot
  const int number_;
  WorkerSlot worker_;
  std::optional<SnapshotPin> pin_;
  ImagesByReference images_;  // held, so that none is evicted before running.json names it
  Restore restore_;
  std::map<std::string, std::string> digests_;  // by container
};

}  // namespace

Status RunStart(const Core& core, Op& op, const StartActorRequest& request, Operation* outcome) {
  RETURN_IF_ERROR(CheckVolumes(request.spec()));
  if (request.assets().files_size() > 0) {
    return Fail(reasons::kInvalidSandboxAsset,
                "this version runs the runtime that is installed on the node; name no asset files");
  }
  if (auto resident = core.residents->Get(request.actor().uid())) {
    // The control plane says that it must not run any more; two at once must never be.
    RETURN_IF_ERROR(op.Step("STOP", /*may_stop=*/true));
    torpor::v1::OpHeader header = request.op();
    header.set_op_id(DeriveOpId(op.id(), "before"));
    RETURN_IF_ERROR(StopInWorker(core, resident->actor_uid(), resident->worker_uid(), header,
                                 Duration(0), op.deadline()));
    core.residents->Erase(resident->actor_uid());
  }
  if (request.sources().empty()) return StartAttempt(core, op, request, nullptr, 0).Run(outcome);
  Status status;
  for (int i = 0; i < request.sources_size(); ++i) {
    status = StartAttempt(core, op, request, &request.sources(i), i).Run(outcome);
    // Only damaged bytes are a reason for the next copy of the same generation.
    if (status.code() != Code::kDataLoss) return status;
    LogWarning("a snapshot source cannot be used",
               {{"actor", request.actor().uid()}, {"error", std::string(status.message())}});
  }
  return status;
}

}  // namespace torpor::agent
