#pragma once
// The sandbox class `gvisor`: one runsc sandbox per actor. Behaviour, errors and threads as
// runtime.h says; README.md tells the rules behind it.
//
// MEMORY and VOLUMES captures. The root container is the only one of the spec, or, with several, a
// program of ours that sleeps; the end of any other ends the guest. Capture with leave_running is
// UNIMPLEMENTED, limits of one container are INVALID_ARGUMENT, both before anything is touched.
//
// `on_exit` may run before Start has returned, and may still be running when the Sandbox is
// destroyed. The Reaper must outlive the runtime, the runtime its sandboxes.

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/thread_pool.h"
#include "os/process/reaper.h"
#include "runtime/gvisor/commands.h"
#include "runtime/gvisor/page_cache.h"
#include "runtime/registry.h"
#include "runtime/runtime.h"

namespace torpor::gvisor {

struct Member;

class GvisorRuntime : public runtime::Runtime {
 public:
  struct Settings {
    RunscTarget target;
    std::string helper;
    bool hide_net_core = false;
  };

  // Probes runsc and this machine, and proves by a smoke test that a guest boots, is captured and
  // goes on after a restore. Platform `auto` is systrap if the test passes with it, else ptrace.
  static StatusOr<std::unique_ptr<runtime::Runtime>> Create(const runtime::RuntimeConfig& config);

  // Without any test.
  GvisorRuntime(Settings settings, os::Reaper* reaper);
  ~GvisorRuntime() override;

  const runtime::Capabilities& capabilities() const override { return capabilities_; }
  StatusOr<std::unique_ptr<runtime::Sandbox>> Start(
      const runtime::StartArgs& args, std::function<void(runtime::SandboxExit)> on_exit,
      bool* guest_ran) override;
  std::string PreparationKey(const runtime::StartArgs& args) const override;
  StatusOr<std::unique_ptr<runtime::PreparedSandbox>> Prepare(
      const runtime::StartArgs& args) override;
  Status CleanUp(const std::string& sandbox_id, const std::string& state_dir) override;

 private:
  Status LaunchAll(const std::vector<Member>& members, const runtime::StartArgs& args, bool restore,
                   bool direct, bool* guest_ran);
  StatusOr<std::unique_ptr<runtime::Sandbox>> StartBySocket(
      const runtime::StartArgs& args, std::function<void(runtime::SandboxExit)> on_exit,
      bool* guest_ran);

  const Settings settings_;
  os::Reaper* const reaper_;
  runtime::Capabilities capabilities_;
  ThreadPool notifier_;  // runs on_exit, so that the reaper never waits for it
  PageCache page_cache_;
  std::thread evictor_;  // runs its passes
};

}  // namespace torpor::gvisor
