#include "agent/node_agent.h"

#include <fmt/format.h>
#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <xxhash.h>

#include "agent/request_check.h"
#include "agent/steps.h"
#include "base/log.h"
#include "base/trace.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using std::chrono::minutes;
using torpor::v1::JournalRecord;
using torpor::v1::Operation;

constexpr Duration kStartTimeout = minutes(3);
constexpr Duration kCaptureTimeout = minutes(10);
constexpr Duration kUploadTimeout = minutes(30);
constexpr Duration kStopTimeout = minutes(1);
constexpr Duration kReportTimeout = std::chrono::seconds(5);
constexpr size_t kBackgroundThreads = 4;

// What must be equal when an operation id is repeated. Not the header's timeout, trace or lease:
// the same request may be asked again by another server, later.
template <typename Request>
std::string HashRequest(Request request) {
  request.mutable_op()->clear_timeout();
  request.mutable_op()->clear_traceparent();
  request.mutable_op()->clear_node_lease_id();
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    request.SerializeToCodedStream(&out);
  }
  XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

// The worst that is known when an operation ends outside of its steps.
void FillFailure(const Status& status, Operation* outcome) {
  outcome->set_state(Operation::STATE_FAILED);
  *outcome->mutable_error() = ToRpcStatus(status);
  outcome->clear_result();
}

}  // namespace

NodeAgent::NodeAgent(NodeAgentOptions options, NodeAgentParts parts)
    : options_(std::move(options)),
      metrics_(parts.metrics),
      registry_(parts.registry),
      snapshots_(parts.dirs, options_.boot_id),
      images_(parts.dirs, options_.boot_id, parts.mover, parts.ids, parts.clock,
              std::move(parts.unpacker), options_.unreachable_max),
      operations_(&parts.dirs->journals(), options_.boot_id, parts.clock, parts.observer),
      core_{parts.dirs,
            &snapshots_,
            parts.workers,
            parts.mover,
            &images_,
            &operations_,
            &residents_,
            &uploads_,
            &reservations_,
            &janitor_,
            parts.clock,
            parts.ids,
            options_.unreachable_max,
            parts.node_metrics},
      sums_(&snapshots_),
      collector_(&core_, parts.registry, options_.garbage, std::move(parts.mounts)),
      background_(kBackgroundThreads),
      janitor_(1) {}

NodeAgent::~NodeAgent() = default;

template <typename Request>
StatusOr<Operation> NodeAgent::Perform(const char* method, const Request& request,
                                       Duration default_timeout, bool beside_others,
                                       JournalRecord accepted, Steps<Request> steps) {
  RETURN_IF_ERROR(CheckRequest(request));
  accepted.set_kind(JournalRecord::KIND_ACCEPTED);
  accepted.set_op_id(request.op().op_id());
  accepted.set_method(method);
  accepted.set_generation(request.op().generation());
  accepted.set_request_hash(HashRequest(request));
  Duration timeout = FromProto(request.op().timeout());
  if (timeout <= Duration(0)) timeout = default_timeout;
  ASSIGN_OR_RETURN(Admission admission,
                   operations_.Admit({request.op().actor_uid(), std::move(accepted), timeout,
                                      beside_others, request.op().node_lease_id()}));
  if (admission.known) return *admission.known;
  LogTrace trace(request.op().traceparent());
  Operation outcome;
  outcome.set_state(Operation::STATE_SUCCEEDED);
  Status status = steps(core_, *admission.op, request, &outcome);
  if (!status.ok()) {
    LogWarning(fmt::format("{} failed", method), {{"actor", request.op().actor_uid()},
                                                  {"op", request.op().op_id()},
                                                  {"reason", ReasonOf(status)},
                                                  {"error", std::string(status.message())}});
    FillFailure(status, &outcome);
  }
  outcome = operations_.Finish(admission.op, std::move(outcome));
  metrics_.Ended(outcome);
  return outcome;
}

StatusOr<Operation> NodeAgent::StartActor(const torpor::v1::StartActorRequest& request) {
  JournalRecord accepted;
  // The specification holds secrets and is not needed to undo a start.
  *accepted.mutable_start() = request;
  accepted.mutable_start()->clear_spec();
  accepted.mutable_start()->clear_assets();
  return Perform("StartActor", request, kStartTimeout, false, std::move(accepted), RunStart);
}

StatusOr<Operation> NodeAgent::CaptureActor(const torpor::v1::CaptureActorRequest& request) {
  JournalRecord accepted;
  *accepted.mutable_capture() = request;
  return Perform("CaptureActor", request, kCaptureTimeout, false, std::move(accepted), RunCapture);
}

StatusOr<Operation> NodeAgent::UploadSnapshot(const torpor::v1::UploadSnapshotRequest& request) {
  JournalRecord accepted;
  *accepted.mutable_upload() = request;
  return Perform("UploadSnapshot", request, kUploadTimeout, true, std::move(accepted), RunUpload);
}

StatusOr<Operation> NodeAgent::StopActor(const torpor::v1::StopActorRequest& request) {
  JournalRecord accepted;
  *accepted.mutable_stop() = request;
  return Perform("StopActor", request, kStopTimeout, false, std::move(accepted), RunStop);
}

StatusOr<Operation> NodeAgent::DeleteLocalSnapshots(
    const torpor::v1::DeleteLocalSnapshotsRequest& request) {
  JournalRecord accepted;
  *accepted.mutable_delete_local() = request;
  return Perform("DeleteLocalSnapshots", request, kStopTimeout, false, std::move(accepted),
                 RunDeleteLocal);
}

StatusOr<Operation> NodeAgent::GetOperation(const torpor::v1::GetOperationRequest& request) {
  if (!IsUuid(request.op_id())) {
    return InvalidFields("FIELD_INVALID", {{"op_id", "must be a lower-case uuid"}});
  }
  return operations_.Get(request);
}

torpor::v1::Inventory NodeAgent::GetInventory() {
  torpor::v1::Inventory out;
  out.set_node_name(options_.node_name);
  out.set_boot_id(options_.boot_id);
  out.set_lease_id(operations_.lease());
  for (torpor::v1::Resident& resident : residents_.All()) {
    *out.add_residents() = std::move(resident);
  }
  auto uids = core_.dirs->ListActors();
  if (uids.ok()) {
    for (const std::string& uid : *uids) {
      auto copies = snapshots_.List(uid);
      if (!copies.ok()) continue;
      for (torpor::v1::LocalCopy& copy : *copies) *out.add_local_copies() = std::move(copy);
    }
  }
  for (Operation& operation : operations_.Current()) {
    *out.add_operations() = std::move(operation);
  }
  return out;
}

StatusOr<torpor::v1::RegisterWorkerResponse> NodeAgent::RegisterWorker(
    const std::string& worker_id, const torpor::v1::WorkerInfo& info) {
  bool new_process = false;
  ASSIGN_OR_RETURN(torpor::v1::RegisterWorkerResponse response,
                   core_.workers->Register(worker_id, info, &new_process));
  // What the process before it held has ended with it.
  if (new_process) residents_.EraseWorker(response.worker_uid());
  LogInfo("worker registered", {{"worker", worker_id},
                                {"uid", response.worker_uid()},
                                {"epoch", fmt::to_string(response.epoch())}});
  operations_.Wake();  // the control plane is told with the next renewal, which comes now
  return response;
}

Status NodeAgent::CheckHosted(const std::string& worker_id, const std::string& actor_uid) const {
  ASSIGN_OR_RETURN(WorkerSlot slot, core_.workers->FindById(worker_id));
  auto resident = residents_.Get(actor_uid);
  if (resident && resident->worker_uid() == slot.info.worker_uid()) return OkStatus();
  return Fail(reasons::kNotAllowed, "this worker does not host that actor");
}

Status NodeAgent::Forward(torpor::v1::ReportActorRequest request) {
  request.set_lease_id(operations_.lease());
  return registry_->ReportActor(request, kReportTimeout);
}

Status NodeAgent::ReportExit(const std::string& worker_id, const torpor::v1::ExitReport& report) {
  RETURN_IF_ERROR(CheckHosted(worker_id, report.actor_uid()));
  torpor::v1::ReportActorRequest request;
  *request.mutable_exited() = report;
  RETURN_IF_ERROR(Forward(std::move(request)));
  // Only now: a repeated report must pass the check above. While an operation runs, that one knows
  // best what became of the sandbox.
  auto resident = residents_.Get(report.actor_uid());
  if (resident && resident->generation() == report.generation() &&
      !operations_.IsBusy(report.actor_uid())) {
    residents_.Erase(report.actor_uid());
  }
  return OkStatus();
}

Status NodeAgent::WishIdle(const std::string& worker_id, const torpor::v1::IdleWish& wish) {
  RETURN_IF_ERROR(CheckHosted(worker_id, wish.actor_uid()));
  torpor::v1::ReportActorRequest request;
  *request.mutable_idle() = wish;
  return Forward(std::move(request));
}

Status NodeAgent::WishAwake(const std::string& worker_id, const torpor::v1::AwakeWish& wish) {
  RETURN_IF_ERROR(CheckHosted(worker_id, wish.actor_uid()));
  torpor::v1::ReportActorRequest request;
  *request.mutable_awake() = wish;
  return Forward(std::move(request));
}

OperationTable::Present NodeAgent::IsHere() const {
  return [this](const std::string& uid) {
    return core_.dirs->OpenActor(uid).status().code() != Code::kNotFound;
  };
}

void NodeAgent::NotWanted(const Operation& operation) {
  operations_.Acknowledge(operation.op_id());
  operations_.Forget(operation.actor_uid(), IsHere());
}

void NodeAgent::Acknowledged(const Operation& operation) {
  NotWanted(operation);
  if (operation.state() != Operation::STATE_SUCCEEDED || !operation.has_capture()) return;
  auto copies = snapshots_.List(operation.actor_uid());
  if (!copies.ok()) return;
  for (const std::string& name : ChoosePrune(*copies, operation.capture().meta().generation())) {
    // A pinned one goes with the next acknowledgement.
    Status status = snapshots_.Delete(operation.actor_uid(), name, core_.clock->WallNow());
    if (!status.ok()) {
      LogInfo("an older local generation stays for now",
              {{"actor", operation.actor_uid()}, {"error", std::string(status.message())}});
    }
  }
  SweepLater(core_, operation.actor_uid());
  sums_.Add(operation.actor_uid(), operation.capture().snapshot_name());
}

Status NodeAgent::StopResident(const std::string& actor_uid) {
  auto resident = residents_.Get(actor_uid);
  if (!resident) return OkStatus();
  torpor::v1::OpHeader header;
  header.set_op_id(core_.ids->NewUuid());
  header.set_generation(resident->generation());
  RETURN_IF_ERROR(StopInWorker(core_, actor_uid, resident->worker_uid(), header, Duration(0),
                               core_.clock->Now() + kStopTimeout));
  residents_.Erase(actor_uid);
  return OkStatus();
}

void NodeAgent::FinishInBackground(const std::function<bool()>& stop) {
  sums_.Work(stop);
  if (stop() || !images_.HasUnflushed()) return;
  core_.metrics.flushes.Add({"images"});
  Status status = images_.Flush();
  if (!status.ok()) {
    LogError("images could not be flushed; the next boot will fetch them again",
             {{"error", std::string(status.message())}});
  }
}

StatusOr<std::set<std::string>> NodeAgent::PinnedImages() const {
  std::set<std::string> out;
  auto keep = [&](const auto& digests) {
    for (const auto& [container, digest] : digests) out.insert(digest);
  };
  ASSIGN_OR_RETURN(std::vector<std::string> uids, core_.dirs->ListActors());
  for (const std::string& uid : uids) {
    if (residents_.Get(uid)) {
      ASSIGN_OR_RETURN(torpor::v1::RunningRecord record, core_.dirs->ReadRunning(uid));
      keep(record.image_digests());
    }
    ASSIGN_OR_RETURN(std::vector<torpor::v1::LocalCopy> copies, snapshots_.List(uid));
    for (const torpor::v1::LocalCopy& copy : copies) {
      auto manifest = snapshots_.Read(uid, copy.snapshot_name());
      if (manifest.ok()) keep(manifest->image_digests);
    }
  }
  return out;
}

void NodeAgent::TidyCaches() {
  auto space = core_.dirs->root().Space();
  auto pinned = PinnedImages();
  Status status = space.ok() ? pinned.status() : space.status();
  if (status.ok()) {
    CacheBudget budget{options_.image_bytes_max, options_.image_min_age};
    if (budget.bytes_max == 0) budget.bytes_max = space->total_bytes / 10;
    auto freed = images_.Evict(*pinned, budget);
    status = freed.status();
    if (freed.ok() && *freed > 0) LogInfo("images evicted", {{"bytes", fmt::to_string(*freed)}});
  }
  if (!status.ok()) {
    LogWarning("no image is evicted now", {{"error", std::string(status.message())}});
  }
  collector_.MeasureDisk();
  torpor::v1::DiskUsage disk = collector_.Disk();
  core_.metrics.disk_bytes.Set({"snapshots"}, static_cast<double>(disk.snapshot_bytes()));
  core_.metrics.disk_bytes.Set({"images"}, static_cast<double>(disk.image_bytes()));
  core_.metrics.disk_pressure.Set({}, disk.pressure() ? 1 : 0);
}

void NodeAgent::Maintain() { operations_.DropExpired(IsHere()); }

}  // namespace torpor::agent
