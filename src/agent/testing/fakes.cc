#include "agent/testing/fakes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <fmt/format.h>

#include "agent/outcome.h"
#include "agent/steps.h"
#include "model/reasons.h"
#include "snapshot/format/sha256.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;

constexpr char kMemoryFile[] = "memory.img";
constexpr size_t kFileBytesMax = 1 << 20;

Status Unreachable() { return Status(Code::kUnavailable, "connection refused"); }

Status WriteBlob(const os::DirFd& blobs, const std::string& content, std::string* digest) {
  const std::string hex = snapshot::Sha256Hex(content);
  *digest = "sha256:" + hex;
  return blobs.WriteFile("blobs/sha256/" + hex, content, 0444);
}

}  // namespace

Operation FakeOperations::Run(const torpor::v1::OpHeader& header, const std::string& method,
                              const Work& work) {
  {
    MutexLock lock(&mu_);
    auto it = done_.find(header.op_id());
    if (it != done_.end()) return it->second;
  }
  Operation out;
  out.set_op_id(header.op_id());
  out.set_method(method);
  out.set_actor_uid(header.actor_uid());
  out.set_state(Operation::STATE_SUCCEEDED);
  Status status = work(&out);
  if (!status.ok()) {
    out.set_state(Operation::STATE_FAILED);
    *out.mutable_error() = ToRpcStatus(status);
  }
  MutexLock lock(&mu_);
  done_[header.op_id()] = out;
  return out;
}

StatusOr<Operation> FakeOperations::Get(const torpor::v1::GetOperationRequest& request) {
  MutexLock lock(&mu_);
  auto it = done_.find(request.op_id());
  if (it != done_.end()) return it->second;
  return Fail(reasons::kOperationNotFound, "unknown");
}

torpor::v1::WorkerInfo FakeWorker::Info() const {
  torpor::v1::WorkerInfo info;
  info.set_name("gvisor-0");
  info.set_sandbox_class(ateapi::SANDBOX_CLASS_GVISOR);
  info.set_worker_uid(worker_uid);
  info.set_epoch(epoch);
  info.set_ready(true);
  return info;
}

void FakeWorker::FailNext(const std::string& method, Status status) {
  MutexLock lock(&mu_);
  failures_[method] = std::move(status);
}

void FakeWorker::LeaveInCapture(const std::string& name) {
  MutexLock lock(&mu_);
  left_over_ = name;
}

void FakeWorker::Kill() {
  MutexLock lock(&mu_);
  alive_ = false;
  sandboxes_.clear();
}

void FakeWorker::Restart() {
  MutexLock lock(&mu_);
  alive_ = true;
  operations_ = std::make_unique<FakeOperations>();
  worker_uid.clear();
  epoch = 0;
}

bool FakeWorker::Hosts(const std::string& uid) const {
  MutexLock lock(&mu_);
  return sandboxes_.count(uid) > 0;
}

std::string FakeWorker::MemoryOf(const std::string& uid) const {
  MutexLock lock(&mu_);
  auto it = sandboxes_.find(uid);
  return it == sandboxes_.end() ? "" : it->second.memory;
}

int FakeWorker::starts() const {
  MutexLock lock(&mu_);
  return starts_;
}

torpor::v1::StartWorkloadRequest FakeWorker::last_start() const {
  MutexLock lock(&mu_);
  return last_start_;
}

void FakeWorker::AddSandbox(const std::string& uid) {
  MutexLock lock(&mu_);
  sandboxes_[uid] = {"stray", 1};
}

Status FakeWorker::CheckAlive() const {
  MutexLock lock(&mu_);
  return alive_ ? OkStatus() : Unreachable();
}

Status FakeWorker::PassDeath(bool after_work) {
  MutexLock lock(&mu_);
  if (!alive_) return Unreachable();
  if (dies_after_work_ != after_work) return OkStatus();
  dies_after_work_.reset();
  alive_ = false;
  sandboxes_.clear();
  return Unreachable();
}

Status FakeWorker::TakeFailure(const std::string& method) {
  MutexLock lock(&mu_);
  auto it = failures_.find(method);
  if (it == failures_.end()) return OkStatus();
  Status status = std::move(it->second);
  failures_.erase(it);
  return status;
}

StatusOr<Operation> FakeWorker::Answer(const std::string& method, Operation outcome) {
  RETURN_IF_ERROR(PassDeath(/*after_work=*/true));
  MutexLock lock(&mu_);
  if (lost_.erase(method) > 0) return Status(Code::kUnavailable, "the connection broke");
  return outcome;
}

StatusOr<Operation> FakeWorker::Start(const torpor::v1::StartWorkloadRequest& request) {
  RETURN_IF_ERROR(PassDeath(/*after_work=*/false));
  auto work = [&](Operation* out) -> Status {
    {
      MutexLock lock(&mu_);
      ++starts_;
      last_start_ = request;
    }
    RETURN_IF_ERROR(TakeFailure("start"));
    for (const auto& container : request.spec().containers()) {
      RETURN_IF_ERROR(node_dir_
                          ->ReadFile(fmt::format("{}/{}/config.json", request.dirs().bundles(),
                                                 container.name()),
                                     kFileBytesMax)
                          .status());
    }
    std::string memory = "boot";
    if (request.restore() != torpor::v1::FIDELITY_UNSPECIFIED) {
      ASSIGN_OR_RETURN(
          memory, node_dir_->ReadFile(request.dirs().restore() + "/" + kMemoryFile, kFileBytesMax));
    }
    MutexLock lock(&mu_);
    if (sandboxes_.count(request.op().actor_uid()) > 0) {
      return Fail(reasons::kInternal, "this actor runs already");
    }
    sandboxes_[request.op().actor_uid()] = {memory, request.op().generation()};
    out->mutable_start()->set_address("unix:/door.sock");
    return OkStatus();
  };
  return Answer("start", operations_->Run(request.op(), "StartWorkload", work));
}

StatusOr<Operation> FakeWorker::Capture(const torpor::v1::CaptureWorkloadRequest& request) {
  RETURN_IF_ERROR(PassDeath(/*after_work=*/false));
  auto work = [&](Operation* out) -> Status {
    RETURN_IF_ERROR(TakeFailure("capture"));
    MutexLock lock(&mu_);
    auto it = sandboxes_.find(request.op().actor_uid());
    if (it == sandboxes_.end()) return Fail(reasons::kActorNotFound, "does not run here");
    const std::string memory = it->second.memory + "+";
    ASSIGN_OR_RETURN(os::DirFd dir, node_dir_->OpenDir(request.dirs().capture()));
    if (!std::exchange(capture_nothing_, false)) {
      if (Status status = dir.WriteFile(kMemoryFile, memory, 0600); !status.ok()) {
        AddMetadata(status, kGuestAlive, "true");
        return status;
      }
      auto* file = out->mutable_capture()->add_files();
      file->set_name(kMemoryFile);
      file->set_logical_bytes(static_cast<int64_t>(memory.size()));
      file->set_needed_from(request.fidelity());
    }
    if (!left_over_.empty()) RETURN_IF_ERROR(dir.WriteFile(left_over_, "?", 0600));
    left_over_.clear();
    torpor::v1::SnapshotMeta* meta = out->mutable_capture()->mutable_meta();
    meta->set_sandbox_class(ateapi::SANDBOX_CLASS_GVISOR);
    meta->set_runtime("fake");
    meta->set_runtime_version("1");
    meta->set_architecture("amd64");
    it->second.memory = memory;
    if (!request.leave_running()) sandboxes_.erase(it);
    return OkStatus();
  };
  return Answer("capture", operations_->Run(request.op(), "CaptureWorkload", work));
}

StatusOr<Operation> FakeWorker::Stop(const torpor::v1::StopWorkloadRequest& request) {
  RETURN_IF_ERROR(PassDeath(/*after_work=*/false));
  auto work = [&](Operation*) -> Status {
    RETURN_IF_ERROR(TakeFailure("stop"));
    MutexLock lock(&mu_);
    sandboxes_.erase(request.op().actor_uid());
    return OkStatus();
  };
  return Answer("stop", operations_->Run(request.op(), "StopWorkload", work));
}

StatusOr<Operation> FakeWorker::Get(const torpor::v1::GetOperationRequest& request) {
  RETURN_IF_ERROR(CheckAlive());
  return operations_->Get(request);
}

StatusOr<torpor::v1::ListWorkloadsResponse> FakeWorker::List() {
  RETURN_IF_ERROR(CheckAlive());
  MutexLock lock(&mu_);
  torpor::v1::ListWorkloadsResponse out;
  for (const auto& [uid, sandbox] : sandboxes_) {
    auto* resident = out.add_residents();
    resident->set_actor_uid(uid);
    resident->set_generation(sandbox.generation);
    resident->set_address("unix:/door.sock");
  }
  return out;
}

StatusOr<torpor::v1::WorkerInfo> FakeWorker::GetInfo() {
  RETURN_IF_ERROR(CheckAlive());
  return Info();
}

StatusOr<torpor::v1::WorkerInfo> FakeWorkerClient::GetInfo(Duration) {
  if (*cut_) return Unreachable();
  return worker_->GetInfo();
}
StatusOr<Operation> FakeWorkerClient::StartWorkload(const torpor::v1::StartWorkloadRequest& request,
                                                    Duration) {
  if (*cut_) return Unreachable();
  return worker_->Start(request);
}
StatusOr<Operation> FakeWorkerClient::CaptureWorkload(
    const torpor::v1::CaptureWorkloadRequest& request, Duration) {
  if (*cut_) return Unreachable();
  return worker_->Capture(request);
}
StatusOr<Operation> FakeWorkerClient::StopWorkload(const torpor::v1::StopWorkloadRequest& request,
                                                   Duration) {
  if (*cut_) return Unreachable();
  return worker_->Stop(request);
}
StatusOr<Operation> FakeWorkerClient::GetOperation(const torpor::v1::GetOperationRequest& request,
                                                   Duration) {
  if (*cut_) return Unreachable();
  return worker_->Get(request);
}
StatusOr<torpor::v1::ListWorkloadsResponse> FakeWorkerClient::ListWorkloads(Duration) {
  if (*cut_) return Unreachable();
  return worker_->List();
}
StatusOr<torpor::v1::GetWorkloadStatsResponse> FakeWorkerClient::GetWorkloadStats(
    const torpor::v1::GetWorkloadStatsRequest&, Duration) {
  return torpor::v1::GetWorkloadStatsResponse();
}

void FakeMover::FailNext(const std::string& method, Status status) {
  MutexLock lock(&mu_);
  failures_[method] = std::move(status);
}

void FakeMover::HoldUploads(bool hold) {
  MutexLock lock(&mu_);
  hold_ = hold;
  changed_.SignalAll();
}

void FakeMover::WaitForUpload() {
  MutexLock lock(&mu_);
  while (held_ == 0) changed_.Wait(&mu_);
}

bool FakeMover::Has(const std::string& uri) const {
  MutexLock lock(&mu_);
  return stored_.count(uri) > 0;
}

int FakeMover::pulls() const {
  MutexLock lock(&mu_);
  return pulls_;
}

Status FakeMover::TakeFailure(const std::string& method) {
  MutexLock lock(&mu_);
  auto it = failures_.find(method);
  if (it == failures_.end()) return OkStatus();
  Status status = std::move(it->second);
  failures_.erase(it);
  return status;
}

void FakeMover::Kill() {
  MutexLock lock(&mu_);
  alive_ = false;
  operations_ = std::make_shared<FakeOperations>();
}

void FakeMover::Restart() {
  MutexLock lock(&mu_);
  alive_ = true;
}

void FakeMover::DieIn(const std::string& method, bool after_work) {
  MutexLock lock(&mu_);
  dies_in_[method] = after_work;
}

Status FakeMover::CheckAlive() const {
  MutexLock lock(&mu_);
  return alive_ ? OkStatus() : Unreachable();
}

StatusOr<Operation> FakeMover::Run(const torpor::v1::OpHeader& header, const std::string& method,
                                   const FakeOperations::Work& work) {
  RETURN_IF_ERROR(CheckAlive());
  std::shared_ptr<FakeOperations> operations;
  std::optional<bool> dies;
  {
    MutexLock lock(&mu_);
    operations = operations_;
    auto it = dies_in_.find(method);
    if (it != dies_in_.end()) dies = it->second;
    dies_in_.erase(method);
  }
  if (dies && !*dies) {
    Kill();
    return Unreachable();
  }
  Operation out = operations->Run(header, method, work);
  if (!dies) return out;
  Kill();
  return Unreachable();
}

Status FakeMover::WaitWhileHeld(const std::string& op_id) {
  MutexLock lock(&mu_);
  ++held_;
  changed_.SignalAll();
  while (hold_ && cancelled_.count(op_id) == 0) changed_.Wait(&mu_);
  --held_;
  return cancelled_.count(op_id) > 0 ? Fail(reasons::kCancelled, "cancelled") : OkStatus();
}

Status FakeMover::Store(const torpor::v1::UploadRequest& request) {
  Stored stored;
  stored.meta = request.meta();
  for (const auto& file : request.files()) {
    ASSIGN_OR_RETURN(stored.files[file.name()],
                     node_dir_->ReadFile(request.source_dir() + "/" + file.name(), kFileBytesMax));
  }
  MutexLock lock(&mu_);
  stored_[request.uri()] = std::move(stored);
  return OkStatus();
}

StatusOr<Operation> FakeMover::Upload(const torpor::v1::UploadRequest& request, Duration) {
  return Run(request.op(), "Upload", [&](Operation* out) -> Status {
    RETURN_IF_ERROR(TakeFailure("upload"));
    RETURN_IF_ERROR(WaitWhileHeld(request.op().op_id()));
    RETURN_IF_ERROR(Store(request));
    out->mutable_upload()->set_manifest_sha256("sha of " + request.uri());
    return OkStatus();
  });
}

StatusOr<Operation> FakeMover::Fetch(const torpor::v1::FetchRequest& request, Duration) {
  return Run(request.op(), "Fetch", [&](Operation* out) -> Status {
    RETURN_IF_ERROR(TakeFailure("fetch"));
    Stored stored;
    {
      MutexLock lock(&mu_);
      auto it = stored_.find(request.snapshot().uri());
      if (it == stored_.end()) return Fail(reasons::kFailedGetExternalObject, "not there");
      stored = it->second;
    }
    *out->mutable_fetch()->mutable_meta() = stored.meta;
    for (const auto& [name, content] : stored.files) {
      RETURN_IF_ERROR(node_dir_->WriteFile(request.target_dir() + "/" + name, content, 0640));
      auto* file = out->mutable_fetch()->add_files();
      file->set_name(name);
      file->set_logical_bytes(static_cast<int64_t>(content.size()));
    }
    return OkStatus();
  });
}

StatusOr<Operation> FakeMover::PullImage(const torpor::v1::PullImageRequest& request, Duration) {
  return Run(request.op(), "PullImage", [&](Operation*) -> Status {
    {
      MutexLock lock(&mu_);
      ++pulls_;
    }
    RETURN_IF_ERROR(TakeFailure("pull"));
    ASSIGN_OR_RETURN(std::string digest, DigestOfReference(request.reference()));
    ASSIGN_OR_RETURN(os::DirFd blobs, node_dir_->OpenDir("images/blobs"));
    RETURN_IF_ERROR(blobs.MkdirOrOpen("blobs", 0755).status());
    RETURN_IF_ERROR(blobs.MkdirOrOpen("blobs/sha256", 0755).status());
    std::string config;
    RETURN_IF_ERROR(WriteBlob(blobs, image_config, &config));
    std::string manifest;
    RETURN_IF_ERROR(
        WriteBlob(blobs, fmt::format(R"({{"config": {{"digest": "{}"}}}})", config), &manifest));
    return blobs.WriteFile("index.json",
                           fmt::format(R"({{"manifests": [{{"digest": "{}", "annotations": )"
                                       R"({{"org.opencontainers.image.ref.name": "{}"}}}}]}})",
                                       manifest, digest),
                           0644);
  });
}

StatusOr<torpor::v1::StatSnapshotResponse> FakeMover::StatSnapshot(
    const torpor::v1::StatSnapshotRequest& request, Duration) {
  RETURN_IF_ERROR(CheckAlive());
  MutexLock lock(&mu_);
  torpor::v1::StatSnapshotResponse out;
  auto it = stored_.find(request.uri());
  if (it == stored_.end()) return out;
  out.set_committed(true);
  out.set_manifest_sha256("sha of " + request.uri());
  *out.mutable_meta() = it->second.meta;
  return out;
}

StatusOr<Operation> FakeMover::GetOperation(const torpor::v1::GetOperationRequest& request,
                                            Duration) {
  RETURN_IF_ERROR(CheckAlive());
  std::shared_ptr<FakeOperations> operations;
  {
    MutexLock lock(&mu_);
    operations = operations_;
  }
  return operations->Get(request);
}

StatusOr<Operation> FakeMover::CancelOperation(const torpor::v1::CancelOperationRequest& request,
                                               Duration) {
  MutexLock lock(&mu_);
  cancelled_.insert(request.op_id());
  changed_.SignalAll();
  return Operation();
}

void FakeRegistry::SetReachable(bool reachable) {
  MutexLock lock(&mu_);
  reachable_ = reachable;
}

void FakeRegistry::ForgetLease() {
  MutexLock lock(&mu_);
  lease_.clear();
}

void FakeRegistry::OrderStop(const std::string& actor_uid) {
  MutexLock lock(&mu_);
  stop_.push_back(actor_uid);
}

void FakeRegistry::WaitForRegistrations(int count) {
  MutexLock lock(&mu_);
  while (registrations_ < count) changed_.Wait(&mu_);
}

void FakeRegistry::WaitForRenewals(int count) {
  MutexLock lock(&mu_);
  while (renewals_ < count) changed_.Wait(&mu_);
}

void FakeRegistry::WaitForOutcomes(size_t count) {
  MutexLock lock(&mu_);
  while (outcomes_.size() < count) changed_.Wait(&mu_);
}

std::vector<Operation> FakeRegistry::outcomes() const {
  MutexLock lock(&mu_);
  return outcomes_;
}

std::vector<torpor::v1::ReportActorRequest> FakeRegistry::reports() const {
  MutexLock lock(&mu_);
  return reports_;
}

torpor::v1::RegisterNodeRequest FakeRegistry::last_registration() const {
  MutexLock lock(&mu_);
  return last_registration_;
}

torpor::v1::RenewLeaseRequest FakeRegistry::last_renewal() const {
  MutexLock lock(&mu_);
  return last_renewal_;
}

Status FakeRegistry::Check(const std::string& lease) {
  if (!reachable_) return Unreachable();
  if (lease_.empty() || lease != lease_) return Fail(reasons::kStaleLease, "another lease");
  return OkStatus();
}

StatusOr<torpor::v1::RegisterNodeResponse> FakeRegistry::RegisterNode(
    const torpor::v1::RegisterNodeRequest& request, Duration) {
  MutexLock lock(&mu_);
  if (!reachable_) return Unreachable();
  lease_ = fmt::format("lease-{}", ++registrations_);
  last_registration_ = request;
  changed_.SignalAll();
  torpor::v1::RegisterNodeResponse out;
  out.set_lease_id(lease_);
  *out.mutable_renew_every() = ToProto(std::chrono::milliseconds(20));
  for (const std::string& uid : stop_) out.add_stop_actor_uids(uid);
  stop_.clear();
  return out;
}

StatusOr<torpor::v1::RenewLeaseResponse> FakeRegistry::RenewLease(
    const torpor::v1::RenewLeaseRequest& request, Duration) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(Check(request.lease_id()));
  ++renewals_;
  last_renewal_ = request;
  changed_.SignalAll();
  torpor::v1::RenewLeaseResponse out;
  for (const std::string& uid : stop_) out.add_stop_actor_uids(uid);
  stop_.clear();
  return out;
}

Status FakeRegistry::ReportOperation(const torpor::v1::ReportOperationRequest& request, Duration) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(Check(request.lease_id()));
  outcomes_.push_back(request.operation());
  changed_.SignalAll();
  return OkStatus();
}

Status FakeRegistry::ReportActor(const torpor::v1::ReportActorRequest& request, Duration) {
  MutexLock lock(&mu_);
  if (!reachable_) return Unreachable();
  reports_.push_back(request);
  return OkStatus();
}

StatusOr<torpor::v1::ListNodeActorsResponse> FakeRegistry::ListNodeActors(
    const torpor::v1::ListNodeActorsRequest&, Duration) {
  MutexLock lock(&mu_);
  if (!reachable_) return Unreachable();
  torpor::v1::ListNodeActorsResponse out;
  for (const auto& [uid, names] : live_) {
    auto* actor = out.add_actors();
    actor->set_actor_uid(uid);
    for (const std::string& name : names) actor->add_keep_snapshot_names(name);
  }
  return out;
}

void FakeRegistry::SetLive(std::map<std::string, std::set<std::string>> live) {
  MutexLock lock(&mu_);
  live_ = std::move(live);
}

Unpacker FakeUnpacker() {
  return [](const std::string&, const std::string&, const std::string& rootfs,
            MonotonicTime) -> Status {
    if (mkdir(rootfs.c_str(), 0755) != 0) return ErrnoStatus(errno, "mkdir rootfs");
    return OkStatus();
  };
}

}  // namespace torpor::agent
