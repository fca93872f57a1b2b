#include "worker/worker_service.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "base/log.h"
#include "model/reasons.h"
#include "worker/request_check.h"

namespace torpor::worker {
namespace {

using torpor::v1::CaptureWorkloadRequest;
using torpor::v1::Operation;
using torpor::v1::StartWorkloadRequest;
using torpor::v1::StopWorkloadRequest;

constexpr size_t kBackgroundThreads = 4;
// How long a capture waits for requests in flight, unless the request says it; and the longest wait
// for answers that are already flowing.
constexpr Duration kDrainGrace = std::chrono::seconds(2);
constexpr Duration kNodeDrainGrace = std::chrono::seconds(30);
constexpr Duration kDrainMax = std::chrono::seconds(60);
constexpr Duration kShutdownTimeout = std::chrono::seconds(30);
constexpr Duration kShutdownRound = std::chrono::milliseconds(50);

Status WithGuestAlive(Status status, bool alive) {
  AddMetadata(status, "guest_alive", alive ? "true" : "false");
  return status;
}

std::string_view WhyOf(torpor::v1::CaptureReason reason) {
  switch (reason) {
    case torpor::v1::CAPTURE_REASON_IDLE:
      return "idle";
    case torpor::v1::CAPTURE_REASON_PRESSURE:
      return "pressure";
    case torpor::v1::CAPTURE_REASON_DRAIN:
      return "drain";
    case torpor::v1::CAPTURE_REASON_GOLDEN:
      return "golden";
    case torpor::v1::CAPTURE_REASON_FORK:
      return "fork";
    default:
      return "api";
  }
}

DrainOptions DrainOptionsOf(const CaptureWorkloadRequest& request) {
  bool node_drain = request.reason() == torpor::v1::CAPTURE_REASON_DRAIN;
  DrainOptions options;
  options.why = WhyOf(request.reason());
  options.grace = node_drain ? kNodeDrainGrace : kDrainGrace;
  // A node that is being emptied gives at least as long as everybody else does.
  if (request.has_drain_grace()) {
    Duration asked = FromProto(request.drain_grace());
    options.grace = node_drain ? std::max<Duration>(asked, kNodeDrainGrace) : asked;
  }
  options.grace_max = request.has_drain_max() ? FromProto(request.drain_max()) : kDrainMax;
  options.refuse_if_busy = request.refuse_if_busy();
  return options;
}

// One line with all phases, as the other roles write it.
void LogPhases(std::string_view message, const std::string& uid, Op& op, const Status& status) {
  std::string phases;
  for (const torpor::v1::Phase& phase : op.phases()->phases()) {
    phases +=
        fmt::format("{}{}={:.1f}", phases.empty() ? "" : " ", phase.name(), phase.duration_ms());
  }
  LogFields fields = {
      {"actor", uid}, {"ms", fmt::format("{:.1f}", op.phases()->ElapsedMs())}, {"phases", phases}};
  if (!status.ok()) fields.push_back({"error", status.ToString()});
  Log(status.ok() ? LogLevel::kInfo : LogLevel::kWarning, message, fields);
}

}  // namespace

WorkerService::WorkerService(const WorkloadTools& tools, Door* door, ExitReporter* exits,
                             IdSource* ids, torpor::v1::WorkerInfo info)
    : tools_(tools),
      door_(door),
      exits_(exits),
      ids_(ids),
      ops_(tools.clock, tools.metrics),
      info_(std::move(info)),
      freezer_(tools.clock),
      background_(std::make_unique<ThreadPool>(kBackgroundThreads)) {
  freezer_.Start();
  if (tools_.cgroups != nullptr) watchdog_ = std::thread([this] { WatchMemory(); });
}

WorkerService::~WorkerService() {
  Shutdown();
  {
    MutexLock lock(&mu_);
    watch_ended_ = true;
    watch_.SignalAll();
  }
  if (watchdog_.joinable()) watchdog_.join();
}

torpor::v1::WorkerInfo WorkerService::GetInfo() const {
  MutexLock lock(&mu_);
  return info_;
}

void WorkerService::SetRegistration(const torpor::v1::RegisterWorkerResponse& registration) {
  MutexLock lock(&mu_);
  info_.set_worker_uid(registration.worker_uid());
  info_.set_epoch(registration.epoch());
  info_.set_ready(true);
}

// ---- Start ----

StatusOr<Operation> WorkerService::StartWorkload(const StartWorkloadRequest& request) {
  RETURN_IF_ERROR(CheckStart(request));
  return ops_.Run("StartWorkload", request, [&](Op& op) {
    Status status = DoStart(request, op);
    LogPhases("Start timing", request.op().actor_uid(), op, status);
    return status;
  });
}

Status WorkerService::WaitReleased(const std::string& uid, MonotonicTime deadline) {
  while (true) {
    auto it = entries_.find(uid);
    if (it == entries_.end() || it->second.state != State::kReleasing) return OkStatus();
    if (!changed_.WaitUntil(&mu_, deadline) && tools_.clock->Now() >= deadline) {
      return Fail(reasons::kDeadlineExceeded, "the actor's last sandbox is still being removed");
    }
  }
}

Status WorkerService::Admit(const std::shared_ptr<Workload>& workload, MonotonicTime deadline) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(WaitReleased(workload->uid(), deadline));
  if (shutting_down_) return Fail(reasons::kShuttingDown, "the worker is shutting down");
  if (entries_.count(workload->uid()) > 0) {
    return Fail(reasons::kWrongState, "the actor is running here; stop it first");
  }
  auto held = std::count_if(entries_.begin(), entries_.end(), [](const auto& entry) {
    return entry.second.state != State::kReleasing;
  });
  if (info_.capacity().actors() > 0 && held >= info_.capacity().actors()) {
    return Fail(reasons::kNoCapacity, fmt::format("this worker holds {} actors already", held));
  }
  entries_[workload->uid()] = {.workload = workload, .state = State::kStarting};
  return OkStatus();
}

Status WorkerService::DoStart(const StartWorkloadRequest& request, Op& op) {
  const std::string& uid = request.op().actor_uid();
  // The callback must not keep the workload alive, and it may come after the workload is gone.
  auto link = std::make_shared<std::weak_ptr<Workload>>();
  auto workload = std::make_shared<Workload>(
      &tools_, request, [this, link] { background_->Run([this, link] { HandleExit(*link); }); });
  *link = workload;
  RETURN_IF_ERROR(Admit(workload, op.deadline()));
  Status status = workload->Start(
      op.deadline(), op.superseded_fd(), [&op] { return op.CheckGoOn(); }, op.phases());
  if (!status.ok()) {
    ReleaseLater(std::move(workload));
    return status;
  }
  door_->Add(uid, request.op().generation(), PortsOf(request.spec()),
             [workload](int port) { return workload->Dial(port); });
  if (workload->freezable() != nullptr) {
    freezer_.Add(uid, workload->freezable(), FromProto(request.spec().freeze_after()),
                 [door = door_, uid] {
                   Route::Counts counts = door->CountsOf(uid);
                   return counts.connecting + counts.open > 0;
                 });
  }
  torpor::v1::StartResult* result = op.result()->mutable_start();
  result->set_address(door_->address());
  result->set_fidelity(request.restore());
  result->set_cold_boot(request.restore() == torpor::v1::FIDELITY_UNSPECIFIED);
  {
    MutexLock lock(&mu_);
    entries_[uid].state = State::kRunning;
  }
  // The guest may have ended between its answer to the probe and here; then nobody else acts.
  if (workload->exit().has_value()) background_->Run([this, link] { HandleExit(*link); });
  return OkStatus();
}

// ---- Capture ----

StatusOr<Operation> WorkerService::CaptureWorkload(const CaptureWorkloadRequest& request) {
  RETURN_IF_ERROR(CheckCapture(request));
  const std::vector<torpor::v1::Fidelity>& can = tools_.runtime->capabilities().fidelities;
  if (std::find(can.begin(), can.end(), request.fidelity()) == can.end()) {
    return Fail(reasons::kFidelityUnsupported,
                fmt::format("this runtime cannot capture {}",
                            torpor::v1::Fidelity_Name(request.fidelity())));
  }
  return ops_.Run("CaptureWorkload", request, [&](Op& op) {
    Status status = DoCapture(request, op);
    LogPhases("Capture timing", request.op().actor_uid(), op, status);
    return status;
  });
}

StatusOr<std::shared_ptr<Workload>> WorkerService::Claim(const std::string& uid, State state,
                                                         MonotonicTime deadline) {
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(WaitReleased(uid, deadline));
  auto it = entries_.find(uid);
  if (it == entries_.end()) return std::shared_ptr<Workload>();
  it->second.state = state;
  return it->second.workload;
}

Status WorkerService::Drain(const CaptureWorkloadRequest& request, MonotonicTime deadline) {
  DrainOptions options = DrainOptionsOf(request);
  // What the drain takes is missing to the capture.
  Duration most = (deadline - tools_.clock->Now()) / 2;
  options.grace = std::min(options.grace, most);
  options.grace_max = std::min(options.grace_max, most);
  if (door_->Drain(request.op().actor_uid(), options) == DrainOutcome::kDrained) return OkStatus();
  return Fail(reasons::kActorBusy, "a request is in flight");
}

// The guest goes on, unless it ended while nobody listened.
Status WorkerService::GoOnAfter(const std::shared_ptr<Workload>& workload, Status status) {
  door_->Undrain(workload->uid());
  workload->AllowFreezing();
  {
    MutexLock lock(&mu_);
    entries_[workload->uid()].state = State::kRunning;
  }
  if (workload->exit().has_value()) {
    std::weak_ptr<Workload> ended = workload;
    background_->Run([this, ended] { HandleExit(ended); });
  }
  return WithGuestAlive(std::move(status), true);
}

Status WorkerService::DoCapture(const CaptureWorkloadRequest& request, Op& op) {
  const std::string& uid = request.op().actor_uid();
  StatusOr<std::shared_ptr<Workload>> claimed = Claim(uid, State::kCapturing, op.deadline());
  if (!claimed.ok()) return WithGuestAlive(claimed.status(), false);
  std::shared_ptr<Workload> workload = std::move(claimed).value();
  if (workload == nullptr) {
    return WithGuestAlive(Fail(reasons::kActorNotFound, "the actor does not run here"), false);
  }
  if (Status awake = workload->HoldAwake(); !awake.ok()) return GoOnAfter(workload, awake);
  PhaseRecorder::Scope drain(op.phases(), "drain");
  if (Status drained = Drain(request, op.deadline()); !drained.ok()) {
    return GoOnAfter(workload, drain.Fail(std::move(drained)));
  }
  drain.End();
  bool guest_alive = false;
  StatusOr<runtime::CaptureOutcome> outcome = workload->Capture(
      request, op.deadline(), op.superseded_fd(), [&op] { return op.CheckGoOn(); }, op.phases(),
      &guest_alive);
  if (!outcome.ok() && guest_alive) return GoOnAfter(workload, outcome.status());
  if (outcome.ok() && request.leave_running()) {
    FillCaptureResult(request, *outcome, op);
    door_->Undrain(uid);
    workload->AllowFreezing();
    MutexLock lock(&mu_);
    entries_[uid].state = State::kRunning;
    return OkStatus();
  }
  door_->Remove(uid, outcome.ok() ? "captured" : "stopped");
  Status status = outcome.status();
  if (outcome.ok()) {
    FillCaptureResult(request, *outcome, op);
  } else {
    (void)workload->Stop(Duration::zero()).ok();  // what is left is removed below
    status = WithGuestAlive(std::move(status), false);
  }
  // Its logs are finished there, too: the dying sentry holds the pipes until its memory is freed.
  ReleaseLater(std::move(workload));
  return status;
}

void WorkerService::FillCaptureResult(const CaptureWorkloadRequest& request,
                                      const runtime::CaptureOutcome& outcome, Op& op) const {
  torpor::v1::CaptureResult* result = op.result()->mutable_capture();
  result->set_fidelity(request.fidelity());
  result->set_left_running(request.leave_running());
  for (const torpor::v1::SnapshotFile& file : outcome.files) *result->add_files() = file;
  const runtime::Capabilities& can = tools_.runtime->capabilities();
  torpor::v1::SnapshotMeta* meta = result->mutable_meta();
  meta->set_generation(request.op().generation());
  meta->set_fidelity(request.fidelity());
  meta->set_sandbox_class(can.sandbox_class);
  meta->set_runtime(can.runtime);
  meta->set_runtime_version(can.runtime_version);
  meta->set_platform(can.platform);
  meta->set_architecture(can.architecture);
  for (const std::string& feature : can.cpu_features) meta->add_cpu_features(feature);
  *meta->mutable_capture_time() = ToProto(tools_.clock->WallNow());
}

// ---- Stop ----

StatusOr<Operation> WorkerService::StopWorkload(const StopWorkloadRequest& request) {
  RETURN_IF_ERROR(CheckStop(request));
  return ops_.Run("StopWorkload", request, [&](Op& op) { return DoStop(request, op); });
}

Status WorkerService::DoStop(const StopWorkloadRequest& request, Op& op) {
  const std::string& uid = request.op().actor_uid();
  ASSIGN_OR_RETURN(std::shared_ptr<Workload> workload, Claim(uid, State::kStopping, op.deadline()));
  if (workload == nullptr) return OkStatus();
  door_->Remove(uid, "stopped");
  Status status = workload->Stop(std::max<Duration>(FromProto(request.grace()), Duration::zero()));
  workload->FinishLogs();
  if (!status.ok()) {
    // It stays listed, so that a repeated stop tries again.
    MutexLock lock(&mu_);
    entries_[uid].state = State::kRunning;
    return status;
  }
  ReleaseLater(std::move(workload));
  return OkStatus();
}

// ---- Ends and clean-up ----

void WorkerService::ReleaseLater(std::shared_ptr<Workload> workload) {
  freezer_.Remove(workload->uid());
  {
    MutexLock lock(&mu_);
    entries_[workload->uid()].state = State::kReleasing;
  }
  background_->Run([this, workload = std::move(workload)] {
    Status status = workload->Release();
    if (!status.ok()) {
      LogError("surroundings of an actor not removed",
               {{"actor", workload->uid()}, {"error", status.ToString()}});
    }
    MutexLock lock(&mu_);
    entries_.erase(workload->uid());
    changed_.SignalAll();
  });
}

void WorkerService::HandleExit(const std::weak_ptr<Workload>& ended) {
  if (std::shared_ptr<Workload> workload = ended.lock()) End(std::move(workload), false);
}

void WorkerService::End(std::shared_ptr<Workload> workload, bool stuck) {
  {
    // Whoever starts, captures or stops it notices the exit by itself.
    MutexLock lock(&mu_);
    auto it = entries_.find(workload->uid());
    if (it == entries_.end() || it->second.workload != workload ||
        it->second.state != State::kRunning) {
      return;
    }
    it->second.state = State::kReleasing;
  }
  if (stuck) workload->NoteStuck();
  door_->Remove(workload->uid(), "exited");
  Status status = workload->Stop(Duration::zero());
  workload->FinishLogs();
  torpor::v1::ExitReport report = workload->MakeExitReport(ids_->NewUuid());
  LogWarning("workload ended", {{"actor", workload->uid()},
                                {"reason", report.reason()},
                                {"message", report.message()},
                                {"cleanup", status.ToString()}});
  // Before the actor is forgotten: after that the reporter may be gone.
  exits_->Report(std::move(report));
  ReleaseLater(std::move(workload));
}

std::optional<std::vector<std::shared_ptr<Workload>>> WorkerService::AwaitRunning(
    MonotonicTime time) {
  std::vector<std::shared_ptr<Workload>> running;
  MutexLock lock(&mu_);
  while (!watch_ended_ && tools_.clock->Now() < time) (void)watch_.WaitUntil(&mu_, time);
  if (watch_ended_) return std::nullopt;
  for (const auto& [uid, entry] : entries_) {
    if (entry.state == State::kRunning) running.push_back(entry.workload);
  }
  return running;
}

void WorkerService::WatchMemory() {
  // Keeps nobody alive: what a workload holds goes when its operation is done with it.
  using Watched = std::map<std::weak_ptr<Workload>, ReclaimWatchdog, std::owner_less<>>;
  Watched watched;
  while (true) {
    auto running = AwaitRunning(tools_.clock->Now() + tools_.memory_watch.every);
    if (!running.has_value()) return;
    Watched still;
    for (const std::shared_ptr<Workload>& workload : *running) {
      StatusOr<MemorySample> sample = workload->SampleMemory();
      if (!sample.ok()) continue;
      auto known = watched.find(workload);
      ReclaimWatchdog watchdog =
          known != watched.end() ? known->second : ReclaimWatchdog(tools_.memory_watch.patience);
      if (watchdog.IsStuck(*sample)) {
        background_->Run([this, workload] { End(workload, true); });
      }
      still.emplace(workload, watchdog);
    }
    watched = std::move(still);
  }
}

// ---- Questions ----

StatusOr<Operation> WorkerService::GetOperation(const torpor::v1::GetOperationRequest& request) {
  return ops_.Get(request);
}

torpor::v1::ListWorkloadsResponse WorkerService::ListWorkloads() const {
  torpor::v1::ListWorkloadsResponse response;
  MutexLock lock(&mu_);
  for (const auto& [uid, entry] : entries_) {
    if (entry.state == State::kReleasing) continue;
    torpor::v1::Resident* resident = response.add_residents();
    resident->set_actor_uid(uid);
    resident->set_generation(entry.workload->generation());
    resident->set_worker_uid(info_.worker_uid());
    if (entry.state != State::kStarting) resident->set_address(door_->address());
  }
  return response;
}

torpor::v1::GetWorkloadStatsResponse WorkerService::GetWorkloadStats(
    const torpor::v1::GetWorkloadStatsRequest& request) const {
  std::set<std::string> wanted(request.actor_uids().begin(), request.actor_uids().end());
  std::vector<std::shared_ptr<Workload>> workloads;
  {
    MutexLock lock(&mu_);
    for (const auto& [uid, entry] : entries_) {
      if (entry.state == State::kStarting || entry.state == State::kReleasing) continue;
      if (wanted.empty() || wanted.count(uid) > 0) workloads.push_back(entry.workload);
    }
  }
  torpor::v1::GetWorkloadStatsResponse response;
  for (const auto& workload : workloads) {
    StatusOr<torpor::v1::WorkloadStats> stats = workload->Stats();
    if (stats.ok()) *response.add_stats() = std::move(stats).value();
  }
  return response;
}

void WorkerService::StopRunning() {
  for (auto& [uid, entry] : entries_) {
    if (entry.state != State::kRunning) continue;
    entry.state = State::kStopping;
    background_->Run([this, workload = entry.workload] {
      door_->Remove(workload->uid(), "stopped");
      Status status = workload->Stop(Duration::zero());
      if (!status.ok()) {
        LogError("workload not stopped",
                 {{"actor", workload->uid()}, {"error", status.ToString()}});
      }
      ReleaseLater(workload);
    });
  }
}

void WorkerService::Shutdown() {
  MonotonicTime deadline = tools_.clock->Now() + kShutdownTimeout;
  MutexLock lock(&mu_);
  shutting_down_ = true;
  info_.set_ready(false);
  while (!entries_.empty() && tools_.clock->Now() < deadline) {
    StopRunning();  // again and again: an operation may end with a running actor meanwhile
    (void)changed_.WaitUntil(&mu_, tools_.clock->Now() + kShutdownRound);
  }
}

}  // namespace torpor::worker
