#include "runtime/gvisor/sandbox.h"

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/log.h"
#include "model/reasons.h"
#include "runtime/gvisor/control_socket/calls.h"
#include "runtime/gvisor/errors.h"
#include "runtime/gvisor/images.h"
#include "runtime/gvisor/leftovers.h"
#include "runtime/gvisor/socket_image.h"

namespace torpor::gvisor {
namespace {

using runtime::CaptureArgs;
using runtime::CaptureFailure;
using runtime::CaptureOutcome;

constexpr auto kAliveLimit = std::chrono::seconds(5);
constexpr auto kKillLimit = std::chrono::seconds(10);
constexpr int kLogLines = 20;
constexpr size_t kSocketPathMax = 107;

MonotonicTime In(Duration d) { return std::chrono::steady_clock::now() + d; }

Status CheckSupported(const CaptureArgs& args) {
  if (args.fidelity != torpor::v1::FIDELITY_MEMORY &&
      args.fidelity != torpor::v1::FIDELITY_VOLUMES) {
    return Fail(reasons::kFidelityUnsupported, "the gvisor class captures MEMORY or VOLUMES, not " +
                                                   torpor::v1::Fidelity_Name(args.fidelity));
  }
  if (args.leave_running) {
    return Fail(reasons::kNotImplemented,
                "this runsc cannot leave a guest running after a capture");
  }
  std::error_code error;
  if (!std::filesystem::is_empty(args.capture_dir, error) || error) {
    return Fail(reasons::kInternal, args.capture_dir + " is not an empty directory");
  }
  return OkStatus();
}

void RemoveContent(const std::string& directory) {
  std::error_code error;
  std::vector<std::filesystem::path> entries;
  std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator it(directory, error); !error && it != end;
       it.increment(error)) {
    entries.push_back(it->path());
  }
  for (const auto& entry : entries) {
    std::filesystem::remove_all(entry, error);
    if (error) LogWarning("cannot remove", {{"path", entry}, {"error", error.message()}});
  }
}

}  // namespace

GvisorSandbox::GvisorSandbox(const RunscTarget& target, StatePaths paths, std::string id,
                             SandboxLeaf leaf, std::unique_ptr<os::Reaper::Watched> sentry,
                             std::shared_ptr<ExitWatch> exit_watch,
                             std::unique_ptr<AppContainers> apps,
                             std::unique_ptr<PageCache::Use> image)
    : target_(target),
      paths_(std::move(paths)),
      id_(std::move(id)),
      leaf_(std::move(leaf)),
      sentry_(std::move(sentry)),
      exit_watch_(std::move(exit_watch)),
      apps_(std::move(apps)),
      isolation_(leaf_.cgroups, leaf_.name, this),
      image_(std::move(image)) {
  if (image_ != nullptr) image_->Loaded();
}

GvisorSandbox::~GvisorSandbox() = default;

StatusOr<CaptureOutcome> GvisorSandbox::Capture(const CaptureArgs& args, CaptureFailure* failure) {
  auto failed = [&](Status status, bool guest_alive) {
    if (failure != nullptr) *failure = {status, guest_alive};
    return status;
  };
  Status supported = CheckSupported(args);
  if (!supported.ok()) return failed(std::move(supported), true);
  if (!exit_watch_->Expect()) {
    return failed(Fail(reasons::kWorkloadExited, "the guest ended before the capture"), false);
  }
  std::optional<PhaseRecorder::Scope> phase;
  if (args.phases != nullptr) phase.emplace(args.phases, "checkpoint");

  CaptureIsolation::Guard guard(&isolation_);
  const bool memory = args.fidelity == torpor::v1::FIDELITY_MEMORY;
  auto saved = memory ? Save(args) : SaveVolumes(args);
  if (saved.ok()) {
    image_.reset();
    int64_t bytes = 0;
    for (const auto& file : saved->files) bytes += file.populated_bytes();
    if (phase) phase->SetBytes(bytes);
    return saved;
  }
  Status status = phase ? phase->Fail(saved.status()) : saved.status();
  RemoveContent(args.capture_dir);
  const bool alive = memory ? isolation_.GoOn(/*saved=*/false) : GoOnAfterVolumes();
  if (alive) exit_watch_->Unexpect();
  return failed(std::move(status), alive);
}

// The sentry is charged for what it writes as long as the checkpoint command runs.
StatusOr<CaptureOutcome> GvisorSandbox::Save(const CaptureArgs& args) {
  RETURN_IF_ERROR(isolation_.Begin());
  if (leaf_.cgroups != nullptr) target_.captures.Add({isolation_.isolated() ? "yes" : "no"});
  if (apps_ != nullptr) RETURN_IF_ERROR(HoldContainersAlive(args));
  RETURN_IF_ERROR(Checkpoint(args));
  // Before anything is ended: a guest whose image is incomplete may still be alive.
  ASSIGN_OR_RETURN(auto files, ListImage(args.capture_dir));
  isolation_.SavedToEnd();
  RETURN_IF_ERROR(EndSentry());
  if (args.pack_volumes) {
    ASSIGN_OR_RETURN(auto volumes, args.pack_volumes());
    files.insert(files.end(), volumes.begin(), volumes.end());
  }
  return CaptureOutcome{std::move(files)};
}

Status GvisorSandbox::HoldContainersAlive(const CaptureArgs& args) {
  paused_ = true;
  ASSIGN_OR_RETURN(os::CommandResult paused,
                   os::RunCommand(PauseCommand(target_, paths_, id_), {.deadline = args.deadline}));
  if (!paused.status.ok()) {
    paused_ = false;
    return MapRunsc("pause", paused.status, LogTail(paths_.LogOf("pause"), kLogLines));
  }
  return apps_->CheckAlive(args.deadline);
}

Status GvisorSandbox::Checkpoint(const CaptureArgs& args) {
  DirectInput direct;
  direct.flag = target_.features.checkpoint_flags.count("direct") != 0;
  direct.file_system = direct.flag && SupportsDirect(args.capture_dir, true);
  std::optional<Status> by_socket;
  if (target_.control != nullptr) by_socket = CheckpointBySocket(args, UseDirect(direct));
  Status status =
      by_socket.has_value() ? *std::move(by_socket) : CheckpointByCommand(args, UseDirect(direct));
  // On a full disk the sentry dies of a nil pointer, so its words do not tell.
  if (status.ok() || !IsFull(args.capture_dir)) return status;
  return Fail(reasons::kDiskFull, std::string(status.message()), {{"path", args.capture_dir}});
}

Status GvisorSandbox::CheckpointByCommand(const CaptureArgs& args, bool direct) {
  auto result = os::RunCommand(CheckpointCommand(target_, paths_, id_, args.capture_dir, direct),
                               {.deadline = args.deadline});
  if (!result.ok()) return result.status();
  if (result->status.ok()) return OkStatus();
  return MapRunsc("checkpoint", result->status, LogTail(paths_.LogOf("checkpoint"), kLogLines));
}

std::optional<Status> GvisorSandbox::CheckpointBySocket(const CaptureArgs& args, bool direct) {
  auto socket = ControlSocket::Connect(paths_.root, id_);
  if (!socket.ok()) return std::nullopt;
  auto files = CreateImage(args.capture_dir, direct);
  CallResult result;
  if (files.ok()) {
    ControlCall call = target_.control->checkpoint();
    call.fds = files->fds();
    result = std::move(*socket).Call(call, args.deadline);
  }
  if (!files.ok() || result.end == CallEnd::kNotSent) {
    RemoveContent(args.capture_dir);
    return std::nullopt;
  }
  // It may still be at it, and would then end a guest that was taken for alive.
  saving_ = result.end == CallEnd::kUnknown;
  return std::move(result.status);
}

// `runsc state` says "running" of a guest that a failed checkpoint has killed, so it must answer.
bool GvisorSandbox::ProveAlive() {
  if (sentry_->ended() || saving_) return false;
  if (paused_) {
    auto resumed =
        os::RunCommand(ResumeCommand(target_, paths_, id_), {.deadline = In(kAliveLimit)});
    if (!resumed.ok() || !resumed->status.ok()) return false;
    paused_ = false;
  }
  if (target_.control != nullptr) {
    // The command would refuse a guest that was restored through the socket: its record says
    // "created" for ever.
    CallResult result =
        CallSandbox(paths_.root, id_, target_.control->processes(id_), In(kAliveLimit));
    return result.end == CallEnd::kDone && result.result.compare(0, 2, "[{") == 0 &&
           !sentry_->ended();
  }
  auto result = os::RunCommand(PsCommand(target_, paths_, id_), {.deadline = In(kAliveLimit)});
  return result.ok() && result->status.ok() && !sentry_->ended();
}

bool GvisorSandbox::Ended() const {
  return sentry_->pidfd() < 0 || os::WaitPidfd(sentry_->pidfd(), MonotonicTime());
}

Status GvisorSandbox::Kill() {
  RETURN_IF_ERROR(sentry_->Signal(SIGKILL));
  return sentry_->Wait(In(kKillLimit)).status();
}

// After a checkpoint the sentry ends by itself, but to give 500 MiB back takes it 100 to 200 ms.
// What a capture promises is certain earlier: once no thread of it can execute anything any more,
// nothing runs and nothing writes. The rest happens while the capture is being committed.
Status GvisorSandbox::EndSentry() {
  RETURN_IF_ERROR(sentry_->Signal(SIGKILL));
  const MonotonicTime deadline = In(kKillLimit);
  while (!sentry_->ended() && !OnlyExitingThreads(sentry_->pid())) {
    if (std::chrono::steady_clock::now() >= deadline) return Kill();
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  return OkStatus();
}

bool GvisorSandbox::EndByRequest(MonotonicTime deadline) {
  if (apps_ != nullptr) {
    apps_->Terminate(deadline);
    return false;  // the root container stays
  }
  // The sentry hands the signal on to the container's first process.
  return sentry_->Signal(SIGTERM).ok() && sentry_->Wait(deadline).ok();
}

Status GvisorSandbox::Stop(Duration grace) {
  exit_watch_->Expect();
  image_.reset();
  Status first;
  if (!sentry_->ended()) {
    const bool ended = grace > Duration::zero() && EndByRequest(In(grace));
    if (!ended) first = Kill();
  }
  apps_.reset();
  for (Status status : {RemoveSandbox(paths_, id_, leaf_), isolation_.TornDown()}) {
    if (first.ok()) first = std::move(status);
  }
  return first;
}

Status RemoveSandbox(const StatePaths& paths, const std::string& id, const SandboxLeaf& leaf) {
  auto find = [&]() -> std::vector<pid_t> {
    if (leaf.cgroups == nullptr) return FindByRoot(paths.root);
    auto processes = leaf.cgroups->Processes(leaf.name);
    if (!processes.ok()) return FindByRoot(paths.root);
    std::erase_if(*processes, [](pid_t pid) { return pid <= 0 || pid == getpid(); });
    return *std::move(processes);
  };
  Status killed = KillUntilGone(find, In(kKillLimit));
  // Not `runsc delete`: it would only remove what lies in this directory, and takes 22 ms.
  RemoveContent(paths.state);
  std::string socket = "/runsc-" + id + ".sock";
  if (paths.root.size() + socket.size() > kSocketPathMax) {
    for (const char* directory : {"/var/run", "/tmp"}) {
      unlink((directory + socket).c_str());
    }
  }
  return killed;
}

}  // namespace torpor::gvisor
