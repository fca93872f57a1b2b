#include "worker/workload.h"

#include <sys/eventfd.h>
#include <sys/stat.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "base/quantity.h"
#include "base/uuid.h"
#include "model/reasons.h"
#include "worker/probe/http_probe.h"
#include "worker/probe/settle.h"
#include "worker/volumes.h"

namespace torpor::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using torpor::v1::ContainerSpec;
using torpor::v1::Fidelity;

constexpr Duration kProbeTimeout = seconds(30);
constexpr Duration kKillTimeout = seconds(10);
// For a guest that gets no processor time, or whose own packet rules answer nothing. With 9
// runnable threads per processor 5 % of the guests needed more than 50 ms.
constexpr Duration kSettleTimeout = milliseconds(200);
// The pipes' ends of a dead sandbox are closed by then; only a left-behind process holds longer.
constexpr Duration kLogsTimeout = milliseconds(200);

// "the workload", or the one of several containers that ended.
std::string Who(const std::optional<runtime::SandboxExit>& exit) {
  return exit.has_value() && !exit->container.empty() ? "container " + exit->container
                                                      : "the workload";
}

std::string DescribeExit(const runtime::SandboxExit& exit) {
  return exit.signal != 0 ? fmt::format("was ended by signal {}", exit.signal)
                          : fmt::format("exited with code {}", exit.exit_code);
}

}  // namespace

// Outlives the workload: the runtime may call back late.
struct Workload::ExitState {
  explicit ExitState(std::function<void()> on_exit)
      : on_exit(std::move(on_exit)), wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  void Note(const runtime::SandboxExit& how) EXCLUDES(mu) {
    {
      MutexLock lock(&mu);
      exit = how;
    }
    eventfd_write(wake.get(), 1);
    on_exit();
  }
  const std::function<void()> on_exit;
  const UniqueFd wake;
  mutable Mutex mu;
  std::optional<runtime::SandboxExit> exit GUARDED_BY(mu);
};

Workload::Workload(const WorkloadTools* tools, torpor::v1::StartWorkloadRequest request,
                   std::function<void()> on_exit)
    : tools_(tools),
      request_(std::move(request)),
      exit_(std::make_shared<ExitState>(std::move(on_exit))) {}

Workload::~Workload() = default;

std::optional<runtime::SandboxExit> Workload::exit() const {
  MutexLock lock(&exit_->mu);
  return exit_->exit;
}

StatusOr<std::string> Workload::Resolve(const std::string& path, bool make) const {
  if (make) {
    StatusOr<os::DirFd> made = tools_->node_dir->MkdirOrOpen(path, 0700);
    if (!made.ok()) return made.status();
  } else {
    StatusOr<os::DirFd> found = tools_->node_dir->OpenDir(path);
    if (!found.ok()) return found.status();
  }
  return fmt::format("{}/{}", tools_->node_path, path);
}

Status Workload::CheckRestoreFiles(const os::DirFd& dir) const {
  for (const torpor::v1::SnapshotFile& file : request_.files()) {
    StatusOr<struct stat> info = dir.Stat(file.name());
    if (!info.ok() || !S_ISREG(info->st_mode) || info->st_size != file.logical_bytes()) {
      return Fail(reasons::kSnapshotCorrupt,
                  fmt::format("snapshot file {} is missing, no regular file or has another size",
                              file.name()));
    }
  }
  return OkStatus();
}

Status Workload::MakeSurroundings() {
  if (tools_->cgroups != nullptr) {
    // First, because the leaf is what a next worker process finds the rest by.
    leaf_ = LeafOf(uid());
    RETURN_IF_ERROR(tools_->cgroups->Create(leaf_, Limits()));
  }
  ASSIGN_OR_RETURN(network_, tools_->network->Create(uid()));
  return OpenLogs({});
}

os::CgroupLimits Workload::Limits() const {
  return os::LimitsForSandbox(request_.spec().memory_bytes(), request_.spec().cpu_milli());
}

Status Workload::OpenLogs(std::map<std::string, OutputPipes> pipes) {
  ASSIGN_OR_RETURN(os::DirFd logs_dir, tools_->node_dir->MkdirOrOpen(request_.dirs().logs(), 0700));
  std::vector<std::string> names;
  for (const ContainerSpec& container : request_.spec().containers()) {
    names.push_back(container.name());
  }
  ASSIGN_OR_RETURN(logs_,
                   tools_->logs->Open(std::move(logs_dir), generation(), names, std::move(pipes)));
  return OkStatus();
}

Status Workload::FillVolumes(MonotonicTime deadline, PhaseRecorder* phases) const {
  if (!HasDurableDirs(request_.spec())) return OkStatus();
  PhaseRecorder::Scope scope(phases, "decode");
  scope.SetDetail("volumes");
  Status status = UnpackVolumes(*tools_->node_dir, request_, deadline);
  return status.ok() ? status : scope.Fail(std::move(status));
}

StatusOr<runtime::StartArgs> Workload::MakeArgs(MonotonicTime deadline,
                                                PhaseRecorder* phases) const {
  const torpor::v1::ActorDirs& dirs = request_.dirs();
  runtime::StartArgs args;
  args.sandbox_id = uid();
  args.spec = request_.spec();
  ASSIGN_OR_RETURN(args.bundles_dir, Resolve(dirs.bundles(), false));
  ASSIGN_OR_RETURN(args.state_dir, Resolve(dirs.state(), true));
  if (request_.restore() != torpor::v1::FIDELITY_UNSPECIFIED) {
    ASSIGN_OR_RETURN(os::DirFd restore, tools_->node_dir->OpenDir(dirs.restore()));
    RETURN_IF_ERROR(CheckRestoreFiles(restore));
    args.restore_dir = fmt::format("{}/{}", tools_->node_path, dirs.restore());
    args.restore_fidelity = request_.restore();
    args.files.assign(request_.files().begin(), request_.files().end());
    args.preserve_restore = request_.preserve_restore();
    RETURN_IF_ERROR(FillVolumes(deadline, phases));
  }
  args.deadline = deadline;
  args.phases = phases;
  return args;
}

StatusOr<PrioritySemaphore::Permit> Workload::AwaitTurn(Priority priority, Fidelity fidelity,
                                                        MonotonicTime deadline, int wake_fd,
                                                        PhaseRecorder* phases) const {
  if (tools_->memory_images == nullptr || fidelity != torpor::v1::FIDELITY_MEMORY) {
    return PrioritySemaphore::Permit();
  }
  const MonotonicTime begin = tools_->clock->Now();
  PhaseRecorder::Scope phase(phases, "queue");
  auto permit = tools_->memory_images->Acquire(priority, deadline, wake_fd);
  if (!permit.ok()) return phase.Fail(permit.status());
  if (tools_->clock->Now() - begin < milliseconds(1)) phase.Drop();
  return permit;
}

Status Workload::RunSandbox(MonotonicTime deadline, int wake_fd, PhaseRecorder* phases,
                            bool* guest_ran) {
  ASSIGN_OR_RETURN(runtime::StartArgs args, MakeArgs(deadline, phases));
  ASSIGN_OR_RETURN(auto turn,
                   AwaitTurn(Priority::kRestore, request_.restore(), deadline, wake_fd, phases));
  if (tools_->pool != nullptr) {
    pool_key_ = tools_->runtime->PreparationKey(args);
    if (TakeSlot(pool_key_)) {
      Status status = RunInSlot(args, guest_ran);
      if (status.ok() || *guest_ran) return status;
      LogWarning("waiting sandbox not usable, starting another",
                 {{"actor", uid()}, {"error", status.ToString()}});
      DropSlot();
    }
  }
  RETURN_IF_ERROR(MakeSurroundings());
  args.netns_path = network_->netns_path();
  if (tools_->cgroups != nullptr) {
    args.cgroups = tools_->cgroups;
    args.cgroup_leaf = leaf_;
    args.cgroup_procs_files = tools_->cgroups->ProcsFiles(args.cgroup_leaf);
  }
  args.prepare_network = [network = network_] { return network->Prepare(); };
  args.stdio = logs_->stdio();
  StatusOr<std::unique_ptr<runtime::Sandbox>> sandbox = tools_->runtime->Start(
      args, [state = exit_](runtime::SandboxExit how) { state->Note(how); }, guest_ran);
  logs_->CloseGuestEnds();
  if (!sandbox.ok()) return sandbox.status();
  sandbox_ = std::move(sandbox).value();
  return OkStatus();
}

bool Workload::TakeSlot(const std::string& key) {
  slot_ = tools_->pool->Take(key, uid(), Limits());
  if (slot_ == nullptr) return false;
  leaf_ = slot_->leaf;
  network_ = slot_->network;
  return true;
}

Status Workload::RunInSlot(const runtime::StartArgs& args, bool* guest_ran) {
  RETURN_IF_ERROR(OpenLogs(std::move(slot_->outputs)));
  ASSIGN_OR_RETURN(
      sandbox_,
      slot_->sandbox->Restore(
          args, [state = exit_](runtime::SandboxExit how) { state->Note(how); }, guest_ran));
  return OkStatus();
}

void Workload::DropSlot() {
  Status status = tools_->pool->Remove(*slot_);
  if (!status.ok()) {
    LogError("waiting sandbox not removed", {{"slot", slot_->name}, {"error", status.ToString()}});
  }
  slot_.reset();
  logs_.reset();
  network_.reset();
  leaf_.clear();
}

void Workload::NoteStarted() {
  start_time_ = tools_->clock->WallNow();
  if (!leaf_.empty() && FromProto(request_.spec().freeze_after()) > Duration::zero()) {
    freezable_ = std::make_shared<FreezableGuest>(tools_->cgroups, leaf_, tools_->clock);
  }
}

void Workload::TellPool() const {
  if (pool_key_.empty()) return;
  runtime::StartArgs recipe;
  recipe.spec = request_.spec();
  recipe.bundles_dir = fmt::format("{}/{}", tools_->node_path, request_.dirs().bundles());
  tools_->pool->NoteWake(pool_key_, recipe);
}

Status Workload::Probe(MonotonicTime deadline, int wake_fd, PhaseRecorder* phases) {
  MonotonicTime begin = tools_->clock->Now();
  DialFunction dial = [network = network_](int port) { return network->Dial(port); };
  for (const ContainerSpec& container : request_.spec().containers()) {
    if (!container.has_wakeup_probe()) continue;
    const ateapi::ContainerWakeupProbe& probe = container.wakeup_probe();
    Duration timeout =
        probe.timeout_seconds() > 0 ? seconds(probe.timeout_seconds()) : kProbeTimeout;
    HttpProbe http = {.path = probe.http_get().path().empty() ? "/" : probe.http_get().path(),
                      .port = probe.http_get().port()};
    PhaseRecorder::Scope scope(phases, "probe");
    ProbeReport report;
    Status status = WaitUntilReady(http, dial, std::min(deadline, begin + timeout),
                                   {wake_fd, exit_->wake.get()}, tools_->clock, &report);
    scope.SetDetail(fmt::format("{}: {} attempts{}", container.name(), report.attempts,
                                report.last_problem.empty() ? "" : ", " + report.last_problem));
    if (!status.ok()) return scope.Fail(Annotate(status, "container " + container.name()));
  }
  return OkStatus();
}

std::optional<os::CgroupUsage> Workload::OutOfMemory() const {
  if (leaf_.empty()) return std::nullopt;
  StatusOr<os::CgroupUsage> usage = tools_->cgroups->Usage(leaf_);
  if (!usage.ok() || (usage->oom_kills == 0 && !stuck_)) return std::nullopt;
  return *usage;
}

std::optional<Status> Workload::ExitError() const {
  std::optional<runtime::SandboxExit> how = exit();
  if (!how.has_value() && !stuck_) return std::nullopt;
  std::string output = logs_ == nullptr ? "" : logs_->LastLines();
  if (!output.empty()) output = "; last output:\n" + output;
  ErrorMetadata metadata;
  std::string what = "was stuck at its memory limit and has been ended";
  if (how.has_value()) {
    what = DescribeExit(*how);
    metadata = {{"exit_code", fmt::to_string(how->exit_code)},
                {"signal", fmt::to_string(how->signal)}};
    if (!how->container.empty()) metadata["container"] = how->container;
  }
  std::optional<os::CgroupUsage> memory = OutOfMemory();
  if (!memory.has_value()) {
    return Fail(reasons::kWorkloadExited, fmt::format("{} {}{}", Who(how), what, output), metadata);
  }
  const int64_t limit = Limits().memory_bytes;
  metadata["limit_bytes"] = fmt::to_string(limit);
  metadata["peak_bytes"] = fmt::to_string(memory->memory_peak_bytes);
  return Fail(reasons::kOutOfMemory,
              fmt::format("{} {}: out of memory, the actor's peak was {} of {} (the template's "
                          "memory and {} for the sandbox){}",
                          Who(how), what, FormatBytes(memory->memory_peak_bytes),
                          FormatBytes(limit), FormatBytes(os::kSandboxOverheadBytes), output),
              metadata);
}

Status Workload::Start(MonotonicTime deadline, int wake_fd,
                       const std::function<Status()>& interrupted, PhaseRecorder* phases) {
  bool guest_ran = false;
  Status status = RunSandbox(deadline, wake_fd, phases, &guest_ran);
  if (sandbox_ != nullptr) guest_ran = true;
  if (status.ok()) {
    NoteStarted();
    status = Probe(deadline, wake_fd, phases);
  }
  if (status.ok() && !exit().has_value()) {
    TellPool();
    return OkStatus();
  }
  Status stopped = Stop(Duration::zero());
  if (!stopped.ok()) {
    LogError("failed start not cleaned up", {{"actor", uid()}, {"error", stopped.ToString()}});
  }
  FinishLogs();
  // Why it ended says more than that its probe was not answered.
  if (std::optional<Status> exited = ExitError()) {
    status = *std::move(exited);
  } else if (status.code() == Code::kCancelled) {
    if (Status asked = interrupted(); !asked.ok()) status = std::move(asked);
  }
  AddMetadata(status, "guest_ran", guest_ran ? "true" : "false");
  return status;
}

void Workload::Settle() {
  DialFunction dial = [network = network_](int port) { return network->Dial(port); };
  if (!WaitUntilSettled(dial, tools_->clock->Now() + kSettleTimeout, {exit_->wake.get()},
                        tools_->clock)) {
    LogWarning("the guest's network did not settle before the capture", {{"actor", uid()}});
  }
}

StatusOr<runtime::CaptureOutcome> Workload::Capture(
    const torpor::v1::CaptureWorkloadRequest& request, MonotonicTime deadline, int wake_fd,
    const std::function<Status()>& interrupted, PhaseRecorder* phases, bool* guest_alive) {
  *guest_alive = true;  // until the runtime was asked
  runtime::CaptureArgs args;
  args.fidelity = request.fidelity();
  args.leave_running = request.leave_running();
  args.deadline = deadline;
  args.phases = phases;
  ASSIGN_OR_RETURN(args.capture_dir, Resolve(request.dirs().capture(), false));
  auto turn = AwaitTurn(Priority::kCapture, request.fidelity(), deadline, wake_fd, phases);
  if (turn.ok() || turn.status().code() == Code::kCancelled) RETURN_IF_ERROR(interrupted());
  if (!turn.ok()) return turn.status();
  // Only now: what the guest begins while it waits would be half open in its image.
  Settle();
  if (HasDurableDirs(request_.spec())) {
    args.pack_volumes = [this, &args]() -> StatusOr<std::vector<torpor::v1::SnapshotFile>> {
      ASSIGN_OR_RETURN(os::DirFd capture, os::DirFd::OpenPath(args.capture_dir));
      return PackVolumes(*tools_->node_dir, request_, capture, args.deadline);
    };
  }
  runtime::CaptureFailure failure;
  StatusOr<runtime::CaptureOutcome> outcome = sandbox_->Capture(args, &failure);
  if (!outcome.ok()) *guest_alive = failure.guest_alive && !exit().has_value();
  return outcome;
}

Status Workload::HoldAwake() { return freezable_ == nullptr ? OkStatus() : freezable_->Hold(); }

void Workload::AllowFreezing() {
  if (freezable_ != nullptr) freezable_->Release();
}

Status Workload::Stop(Duration grace) {
  // Signals do not reach what is frozen.
  Status status = HoldAwake();
  if (sandbox_ != nullptr) {
    Status stopped = sandbox_->Stop(grace);
    if (status.ok()) status = std::move(stopped);
  }
  if (!leaf_.empty()) {
    Status killed = tools_->cgroups->KillAll(leaf_, tools_->clock->Now() + kKillTimeout);
    if (status.ok()) status = std::move(killed);
  }
  return status;
}

void Workload::FinishLogs() {
  if (logs_ != nullptr) logs_->Finish(tools_->clock->Now() + kLogsTimeout);
}

Status Workload::Release() {
  Status status;
  // A capture leaves the rest of the sentry's end and what it was isolated in.
  if (sandbox_ != nullptr) status = sandbox_->Stop(Duration::zero());
  FinishLogs();
  sandbox_.reset();
  if (slot_ != nullptr) {
    Status removed = tools_->pool->Remove(*slot_);
    return status.ok() ? removed : status;
  }
  if (network_ != nullptr) {
    Status removed = network_->Remove();
    if (status.ok()) status = std::move(removed);
  }
  if (!leaf_.empty()) {
    Status removed = tools_->cgroups->KillAll(leaf_, tools_->clock->Now() + kKillTimeout);
    if (removed.ok()) removed = tools_->cgroups->Remove(leaf_);
    if (status.ok()) status = std::move(removed);
  }
  return status;
}

StatusOr<UniqueFd> Workload::Dial(int port) const {
  if (freezable_ != nullptr) RETURN_IF_ERROR(freezable_->Touch());
  return network_->Dial(port);
}

StatusOr<torpor::v1::WorkloadStats> Workload::Stats() const {
  if (tools_->cgroups == nullptr) return Fail(reasons::kNotImplemented, "no cgroups");
  ASSIGN_OR_RETURN(os::CgroupUsage usage, tools_->cgroups->Usage(leaf_));
  // A group that is missing counts as zero; as a number of a living actor that would be a lie.
  if (usage.memory_current_bytes == 0) return Fail(reasons::kActorNotFound, "no sample yet");
  torpor::v1::WorkloadStats stats;
  stats.set_actor_uid(uid());
  stats.set_generation(generation());
  stats.set_source(torpor::v1::WorkloadStats::SOURCE_CGROUP);
  stats.set_memory_current_bytes(usage.memory_current_bytes);
  stats.set_memory_peak_bytes(usage.memory_peak_bytes);
  stats.set_memory_working_set_bytes(usage.memory_working_set_bytes);
  stats.set_cpu_usage_us(usage.cpu_usage_us);
  *stats.mutable_observed_time() = ToProto(tools_->clock->WallNow());
  *stats.mutable_start_time() = ToProto(start_time_);
  return stats;
}

StatusOr<MemorySample> Workload::SampleMemory() const {
  if (leaf_.empty()) return Fail(reasons::kNotImplemented, "no cgroups");
  ASSIGN_OR_RETURN(os::CgroupUsage usage, tools_->cgroups->Usage(leaf_));
  return SampleOf(usage, Limits().memory_bytes, tools_->clock->Now());
}

torpor::v1::ExitReport Workload::MakeExitReport(const std::string& event_id) const {
  torpor::v1::ExitReport report;
  report.set_event_id(event_id);
  report.set_actor_uid(uid());
  report.set_generation(generation());
  if (request_.spec().containers_size() == 1) {
    report.set_container(request_.spec().containers(0).name());
  }
  if (std::optional<runtime::SandboxExit> how = exit()) {
    if (!how->container.empty()) report.set_container(how->container);
    report.set_exit_code(how->exit_code);
    report.set_signal(how->signal);
  }
  if (std::optional<Status> error = ExitError()) {
    report.set_reason(ReasonOf(*error));
    report.set_message(std::string(error->message()));
    report.set_out_of_memory(report.reason() == reasons::kOutOfMemory.name);
  }
  *report.mutable_time() = ToProto(tools_->clock->WallNow());
  return report;
}

}  // namespace torpor::worker
