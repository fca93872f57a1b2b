#pragma once
// One running sandbox of the gvisor class. Internal to this folder; see runtime.h for the rules.

#include <memory>
#include <optional>
#include <string>

#include "os/cgroup/cgroup_tree.h"
#include "os/process/reaper.h"
#include "runtime/gvisor/app_containers.h"
#include "runtime/gvisor/commands.h"
#include "runtime/gvisor/exit_watch.h"
#include "runtime/gvisor/isolation.h"
#include "runtime/gvisor/page_cache.h"
#include "runtime/runtime.h"

namespace torpor::gvisor {

// The cgroup leaf a sandbox was born in; the tree is null if there is none.
struct SandboxLeaf {
  os::CgroupTree* cgroups = nullptr;
  std::string name;
};

class GvisorSandbox : public runtime::Sandbox, private IsolatedSentry {
 public:
  // `apps` is null for one container. `image` is what it was restored from and has loaded, null
  // after a boot.
  GvisorSandbox(const RunscTarget& target, StatePaths paths, std::string id, SandboxLeaf leaf,
                std::unique_ptr<os::Reaper::Watched> sentry, std::shared_ptr<ExitWatch> exit_watch,
                std::unique_ptr<AppContainers> apps, std::unique_ptr<PageCache::Use> image);
  ~GvisorSandbox() override;

  StatusOr<runtime::CaptureOutcome> Capture(const runtime::CaptureArgs& args,
                                            runtime::CaptureFailure* failure) override;
  Status Stop(Duration grace) override;
  pid_t main_pid() const override { return sentry_->pid(); }

 private:
  StatusOr<runtime::CaptureOutcome> Save(const runtime::CaptureArgs& args);
  // Of VOLUMES (sandbox_volumes.cc).
  StatusOr<runtime::CaptureOutcome> SaveVolumes(const runtime::CaptureArgs& args);
  bool GoOnAfterVolumes();
  // With several containers: an image of which one has ended could not be restored.
  Status HoldContainersAlive(const runtime::CaptureArgs& args);
  Status Checkpoint(const runtime::CaptureArgs& args);
  Status CheckpointByCommand(const runtime::CaptureArgs& args, bool direct);
  // Nothing when the sandbox was not reached.
  std::optional<Status> CheckpointBySocket(const runtime::CaptureArgs& args, bool direct);
  Status EndSentry();
  // True when the sentry has ended by `deadline`, because what ran in it was asked to.
  bool EndByRequest(MonotonicTime deadline);

  pid_t pid() const override { return sentry_->pid(); }
  std::shared_ptr<void> HoldPid() const override { return sentry_->HoldPid(); }
  bool Ended() const override;
  bool ProveAlive() override;
  Status Kill() override;

  const RunscTarget& target_;
  const StatePaths paths_;
  const std::string id_;
  const SandboxLeaf leaf_;
  const std::unique_ptr<os::Reaper::Watched> sentry_;
  const std::shared_ptr<ExitWatch> exit_watch_;
  std::unique_ptr<AppContainers> apps_;
  bool paused_ = false;  // by HoldContainersAlive
  bool saving_ = false;  // a checkpoint was begun whose end nobody knows
  CaptureIsolation isolation_;
  std::unique_ptr<PageCache::Use> image_;  // null once the actor has left
};

// Ends every process of the sandbox and removes the content of its state directory. Without a leaf
// the process table is searched. Idempotent.
Status RemoveSandbox(const StatePaths& paths, const std::string& id, const SandboxLeaf& leaf);

}  // namespace torpor::gvisor
