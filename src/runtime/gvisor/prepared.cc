#include "runtime/gvisor/prepared.h"

#include <array>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "model/reasons.h"
#include "runtime/gvisor/control_socket/calls.h"
#include "runtime/gvisor/control_socket/link.h"
#include "runtime/gvisor/images.h"
#include "runtime/gvisor/launch.h"
#include "runtime/gvisor/sandbox.h"
#include "runtime/gvisor/socket_image.h"

namespace torpor::gvisor {
namespace {

using runtime::SandboxExit;
using runtime::StartArgs;

// Who wants to hear of the end is known only when the sandbox is taken; until then the end is
// expected, so that nobody is called.
struct ExitRelay {
  std::function<void(SandboxExit)> on_exit;
};

class PreparedGvisorSandbox : public runtime::PreparedSandbox {
 public:
  PreparedGvisorSandbox(const RunscTarget& target, StatePaths paths, std::string id,
                        SandboxLeaf leaf, std::unique_ptr<os::Reaper::Watched> sentry,
                        std::shared_ptr<ExitWatch> exit_watch, std::shared_ptr<ExitRelay> relay,
                        PageCache* page_cache)
      : target_(target),
        paths_(std::move(paths)),
        id_(std::move(id)),
        leaf_(std::move(leaf)),
        sentry_(std::move(sentry)),
        exit_watch_(std::move(exit_watch)),
        relay_(std::move(relay)),
        page_cache_(page_cache) {}

  bool alive() const override { return sentry_ != nullptr && !sentry_->ended(); }

  StatusOr<std::unique_ptr<runtime::Sandbox>> Restore(const StartArgs& args,
                                                      std::function<void(SandboxExit)> on_exit,
                                                      bool* guest_ran) override {
    *guest_ran = false;
    std::optional<PhaseRecorder::Scope> phase;
    if (args.phases != nullptr) phase.emplace(args.phases, "restore");
    if (phase) phase->SetDetail("in a sandbox that waited");
    std::unique_ptr<PageCache::Use> image;
    Status status = Load(args, &image, guest_ran);
    if (!status.ok()) {
      if (phase) status = phase->Fail(std::move(status));
      Status discarded = Discard();
      if (!discarded.ok()) {
        LogError("remains of a failed start",
                 {{"sandbox", args.sandbox_id}, {"error", std::string(discarded.message())}});
      }
      return status;
    }
    *guest_ran = true;
    relay_->on_exit = std::move(on_exit);
    exit_watch_->Unexpect();
    return std::make_unique<GvisorSandbox>(target_, paths_, id_, leaf_, std::move(sentry_),
                                           exit_watch_, nullptr, std::move(image));
  }

  Status Discard() override { return RemoveSandbox(paths_, id_, leaf_); }

 private:
  Status Load(const StartArgs& args, std::unique_ptr<PageCache::Use>* image, bool* guest_ran) {
    ASSIGN_OR_RETURN(ImageLoad load, BeginLoad(target_, page_cache_, args));
    if (!alive()) return Fail(reasons::kRuntimeFailed, "the prepared sandbox has ended");
    ASSIGN_OR_RETURN(ImageFiles files, OpenImage(args.restore_dir, load.direct));
    *image = std::move(load.use);
    ControlCall call = target_.control->restore();
    call.fds = files.fds();
    CallResult result = CallSandbox(paths_.root, id_, call, args.deadline);
    // A sandbox that did not answer may have let the guest go on before it fell silent.
    *guest_ran = result.end == CallEnd::kUnknown;
    return result.status;
  }

  const RunscTarget& target_;
  const StatePaths paths_;
  const std::string id_;
  const SandboxLeaf leaf_;
  std::unique_ptr<os::Reaper::Watched> sentry_;
  const std::shared_ptr<ExitWatch> exit_watch_;
  const std::shared_ptr<ExitRelay> relay_;
  PageCache* const page_cache_;
};

// Gives the sandbox its network while there is time.
Status CreateLinks(const RunscTarget& target, const StatePaths& paths, const std::string& id,
                   const TakenLink& taken, MonotonicTime deadline) {
  const bool has_link = taken.packets.valid();
  ControlCall call = target.control->create_links(has_link ? &taken.link : nullptr);
  if (has_link) call.fds = {taken.packets.get()};
  return CallSandbox(paths.root, id, call, deadline).status;
}

}  // namespace

std::string PreparationKey(const StartArgs& args) {
  using nlohmann::json;
  if (args.restore_fidelity != torpor::v1::FIDELITY_MEMORY || args.spec.containers_size() != 1 ||
      args.spec.volumes_size() > 0 || args.spec.containers(0).volume_mounts_size() > 0 ||
      !HasImageFiles(args.files)) {
    return "";
  }
  auto text = ReadFile(args.bundles_dir + "/" + args.spec.containers(0).name() + "/config.json");
  json config = json::parse(text.ok() ? *text : "", nullptr, /*allow_exceptions=*/false);
  if (!config.is_object()) return "";
  for (const json& mount : config.value("mounts", json::array())) {
    if (!mount.is_object() || mount.value("type", json()) == "bind") return "";
  }
  config.erase("hostname");
  return fmt::format("{} {}", args.spec.cpu_milli(),
                     config.dump(-1, ' ', false, json::error_handler_t::replace));
}

StatusOr<std::unique_ptr<runtime::PreparedSandbox>> PrepareSandbox(
    const RunscTarget& target, const std::string& helper, bool hide_net_core, os::Reaper* reaper,
    ThreadPool* notifier, PageCache* page_cache, const StartArgs& args) {
  const StatePaths paths(args.state_dir);
  const std::string id = ContainerId(args.sandbox_id);
  const SandboxLeaf leaf{args.cgroups, args.cgroup_leaf};
  auto prepare = [&]() -> StatusOr<std::unique_ptr<runtime::PreparedSandbox>> {
    const std::vector<Member> members = MembersOf(args);  // one: PreparationKey
    RETURN_IF_ERROR(PrepareState(members, args));
    if (args.prepare_network) RETURN_IF_ERROR(args.prepare_network());
    TakenLink taken;
    if (!args.netns_path.empty()) {
      ASSIGN_OR_RETURN(taken, TakeLink(args.netns_path));
    }
    const MonotonicTime started = std::chrono::steady_clock::now();
    bool no_guest_yet = false;
    RETURN_IF_ERROR(Launch(Enclosed(SurroundingsOf(args, paths, helper, hide_net_core),
                                    CreateCommand(target, paths, id)),
                           "create", members.front(), args, &no_guest_yet));
    auto relay = std::make_shared<ExitRelay>();
    auto exit_watch = std::make_shared<ExitWatch>(
        [relay](SandboxExit exit) {
          if (relay->on_exit) relay->on_exit(exit);
        },
        notifier);
    exit_watch->Expect();
    ASSIGN_OR_RETURN(auto sentry, WatchSentry(reaper, paths, started, exit_watch));
    RETURN_IF_ERROR(CreateLinks(target, paths, id, taken, args.deadline));
    return std::make_unique<PreparedGvisorSandbox>(target, paths, id, leaf, std::move(sentry),
                                                   std::move(exit_watch), std::move(relay),
                                                   page_cache);
  };
  auto prepared = prepare();
  if (prepared.ok()) return prepared;
  Status removed = RemoveSandbox(paths, id, leaf);
  if (!removed.ok()) {
    LogError("remains of a prepared sandbox",
             {{"sandbox", args.sandbox_id}, {"error", std::string(removed.message())}});
  }
  return prepared.status();
}

}  // namespace torpor::gvisor
