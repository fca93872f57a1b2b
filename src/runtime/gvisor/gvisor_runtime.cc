#include "runtime/gvisor/gvisor_runtime.h"

#include <signal.h>

#include <fmt/format.h>

#include "base/log.h"
#include "model/reasons.h"
#include "runtime/gvisor/images.h"
#include "runtime/gvisor/launch.h"
#include "runtime/gvisor/leftovers.h"
#include "runtime/gvisor/prepared.h"
#include "runtime/gvisor/sandbox.h"

namespace torpor::gvisor {
namespace {

using runtime::StartArgs;

Status CheckSupported(const StartArgs& args) {
  if (args.restore_fidelity != torpor::v1::FIDELITY_UNSPECIFIED &&
      args.restore_fidelity != torpor::v1::FIDELITY_MEMORY &&
      args.restore_fidelity != torpor::v1::FIDELITY_VOLUMES) {
    return Fail(reasons::kFidelityUnsupported,
                "the gvisor class restores MEMORY or VOLUMES, not " +
                    torpor::v1::Fidelity_Name(args.restore_fidelity));
  }
  if (args.spec.containers().empty()) {
    return Fail(reasons::kFieldInvalid, "an actor has at least one container");
  }
  for (const torpor::v1::ContainerSpec& container : args.spec.containers()) {
    if (container.memory_bytes() > 0 || container.cpu_milli() > 0) {
      return Fail(reasons::kFieldInvalid,
                  fmt::format("container {}: the gvisor class has no limits per container, because "
                              "one process holds the memory of all; limit the actor",
                              container.name()));
    }
  }
  return OkStatus();
}

runtime::Capabilities CapabilitiesOf(const RunscTarget& target) {
  runtime::Capabilities capabilities;
  capabilities.sandbox_class = ateapi::SANDBOX_CLASS_GVISOR;
  capabilities.runtime = "runsc";
  capabilities.runtime_version = target.features.version;
  capabilities.platform = target.platform;
#if defined(__x86_64__)
  capabilities.architecture = "amd64";
#elif defined(__aarch64__)
  capabilities.architecture = "arm64";
#endif
  if (auto cpuinfo = ReadFile("/proc/cpuinfo"); cpuinfo.ok()) {
    capabilities.cpu_features = ParseCpuFeatures(*cpuinfo);
  }
  capabilities.fidelities = {torpor::v1::FIDELITY_VOLUMES, torpor::v1::FIDELITY_MEMORY};
  capabilities.prepares = target.control != nullptr;
  return capabilities;
}

// `sentry` outlives the result.
StatusOr<std::unique_ptr<AppContainers>> WatchApps(const RunscTarget& target,
                                                   const std::vector<Member>& members,
                                                   os::Reaper::Watched* sentry,
                                                   std::shared_ptr<ExitWatch> exit_watch) {
  std::vector<std::string> names;
  for (const Member& member : members) {
    if (!member.pause) names.push_back(member.name);
  }
  auto on_end = [sentry, exit_watch = std::move(exit_watch)](StatusOr<runtime::SandboxExit> how) {
    if (how.ok()) return exit_watch->Exited(*std::move(how));
    // It ends with the sentry, or else nobody would hear of a container's end any more.
    if (sentry->ended() || OnlyExitingThreads(sentry->pid())) return;
    LogError("a container is not watched any more, its sandbox is ended",
             {{"error", std::string(how.status().message())}});
    (void)sentry->Signal(SIGKILL).ok();
  };
  return AppContainers::Watch(target, members.front().paths, members.front().id, names,
                              std::move(on_end));
}

}  // namespace

GvisorRuntime::GvisorRuntime(Settings settings, os::Reaper* reaper)
    : settings_(std::move(settings)),
      reaper_(reaper),
      capabilities_(CapabilitiesOf(settings_.target)),
      notifier_(2),
      page_cache_(Clock::Real()),
      evictor_([this] { page_cache_.Run(); }) {}

GvisorRuntime::~GvisorRuntime() {
  page_cache_.Stop();
  evictor_.join();
}

StatusOr<std::unique_ptr<runtime::Sandbox>> GvisorRuntime::Start(
    const StartArgs& args, std::function<void(runtime::SandboxExit)> on_exit, bool* guest_ran) {
  *guest_ran = false;
  RETURN_IF_ERROR(CheckSupported(args));
  const bool restore = args.restore_fidelity == torpor::v1::FIDELITY_MEMORY;
  std::optional<PhaseRecorder::Scope> phase;
  if (args.phases != nullptr) phase.emplace(args.phases, restore ? "restore" : "boot");
  if (!PreparationKey(args).empty() && CheckImage(args.restore_dir, args.files).ok()) {
    // The command line is the reference, and takes over as long as no guest can have run.
    auto sandbox = StartBySocket(args, on_exit, guest_ran);
    if (sandbox.ok() && phase) phase->SetDetail("by control socket");
    if (sandbox.ok()) return sandbox;
    if (*guest_ran) return phase ? phase->Fail(sandbox.status()) : sandbox.status();
    LogWarning("the fast way failed, starting by command",
               {{"sandbox", args.sandbox_id}, {"error", std::string(sandbox.status().message())}});
  }
  const std::vector<Member> members = MembersOf(args);
  const StatePaths& paths = members.front().paths;
  const std::string& id = members.front().id;
  const SandboxLeaf leaf{args.cgroups, args.cgroup_leaf};
  auto start = [&]() -> StatusOr<std::unique_ptr<runtime::Sandbox>> {
    ImageLoad image;
    if (restore) {
      ASSIGN_OR_RETURN(image, BeginLoad(settings_.target, &page_cache_, args));
    }
    RETURN_IF_ERROR(PrepareState(members, args));
    if (args.prepare_network) RETURN_IF_ERROR(args.prepare_network());
    const MonotonicTime started = std::chrono::steady_clock::now();
    RETURN_IF_ERROR(LaunchAll(members, args, restore, image.direct, guest_ran));
    *guest_ran = true;
    auto exit_watch = std::make_shared<ExitWatch>(std::move(on_exit), &notifier_);
    ASSIGN_OR_RETURN(auto sentry, WatchSentry(reaper_, paths, started, exit_watch));
    std::unique_ptr<AppContainers> apps;
    if (members.size() > 1) {
      ASSIGN_OR_RETURN(apps, WatchApps(settings_.target, members, sentry.get(), exit_watch));
    }
    return std::make_unique<GvisorSandbox>(settings_.target, paths, id, leaf, std::move(sentry),
                                           std::move(exit_watch), std::move(apps),
                                           std::move(image.use));
  };
  auto sandbox = start();
  if (sandbox.ok()) return sandbox;
  Status status = phase ? phase->Fail(sandbox.status()) : sandbox.status();
  Status removed = RemoveSandbox(paths, id, leaf);
  if (!removed.ok()) {
    LogError("remains of a failed start",
             {{"sandbox", args.sandbox_id}, {"error", std::string(removed.message())}});
  }
  return status;
}

// A sandbox goes on when the last of its containers was restored; the image says how many it has.
Status GvisorRuntime::LaunchAll(const std::vector<Member>& members, const StartArgs& args,
                                bool restore, bool direct, bool* guest_ran) {
  for (const Member& member : members) {
    auto command = restore ? RestoreCommand(settings_.target, member.paths, member.id,
                                            args.restore_dir, direct)
                           : BootCommand(settings_.target, member.paths, member.id);
    const Surroundings surroundings =
        SurroundingsOf(args, member.paths, settings_.helper, settings_.hide_net_core);
    RETURN_IF_ERROR(Launch(Enclosed(surroundings, command), restore ? "restore" : "run", member,
                           args, guest_ran));
    if (!restore && !member.pause) *guest_ran = true;
  }
  return OkStatus();
}

StatusOr<std::unique_ptr<runtime::Sandbox>> GvisorRuntime::StartBySocket(
    const StartArgs& args, std::function<void(runtime::SandboxExit)> on_exit, bool* guest_ran) {
  ASSIGN_OR_RETURN(auto prepared, Prepare(args));
  StartArgs restore = args;
  restore.phases = nullptr;  // the caller's covers the preparation, too
  return prepared->Restore(restore, std::move(on_exit), guest_ran);
}

std::string GvisorRuntime::PreparationKey(const StartArgs& args) const {
  return settings_.target.control == nullptr ? "" : gvisor::PreparationKey(args);
}

StatusOr<std::unique_ptr<runtime::PreparedSandbox>> GvisorRuntime::Prepare(const StartArgs& args) {
  if (settings_.target.control == nullptr) return Runtime::Prepare(args);
  return PrepareSandbox(settings_.target, settings_.helper, settings_.hide_net_core, reaper_,
                        &notifier_, &page_cache_, args);
}

Status GvisorRuntime::CleanUp(const std::string& sandbox_id, const std::string& state_dir) {
  return RemoveSandbox(StatePaths(state_dir), ContainerId(sandbox_id), {});
}

}  // namespace torpor::gvisor
