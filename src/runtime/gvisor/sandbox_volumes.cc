// The capture of volumes without memory: this runsc cannot save files of a running guest, so the
// guest stands still while its durable directories are packed, and is then ended.

#include <signal.h>

#include <thread>

#include "base/log.h"
#include "model/reasons.h"
#include "runtime/gvisor/sandbox.h"

namespace torpor::gvisor {

using runtime::CaptureArgs;
using runtime::CaptureOutcome;

// What the guest wrote to a volume is in the host's file when the write returns (file access
// `shared`), so a frozen sandbox has nothing to flush.
StatusOr<CaptureOutcome> GvisorSandbox::SaveVolumes(const CaptureArgs& args) {
  if (leaf_.cgroups == nullptr) {
    return Fail(reasons::kFidelityUnsupported, "without a cgroup nothing can hold the guest still");
  }
  RETURN_IF_ERROR(leaf_.cgroups->Freeze(leaf_.name, true));
  while (true) {
    ASSIGN_OR_RETURN(bool frozen, leaf_.cgroups->IsFrozen(leaf_.name));
    if (frozen) break;
    if (std::chrono::steady_clock::now() >= args.deadline) {
      return Fail(reasons::kDeadlineExceeded, "the guest did not stand still in time");
    }
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  CaptureOutcome outcome;
  if (args.pack_volumes) {
    ASSIGN_OR_RETURN(outcome.files, args.pack_volumes());
  }
  // The signal is there before the thaw, so nothing of the guest is executed any more.
  RETURN_IF_ERROR(sentry_->Signal(SIGKILL));
  RETURN_IF_ERROR(leaf_.cgroups->Freeze(leaf_.name, false));
  RETURN_IF_ERROR(EndSentry());
  return outcome;
}

bool GvisorSandbox::GoOnAfterVolumes() {
  Status thawed = leaf_.cgroups == nullptr ? OkStatus() : leaf_.cgroups->Freeze(leaf_.name, false);
  if (thawed.ok() && ProveAlive()) return true;
  Status killed = Kill();
  if (!killed.ok()) {
    LogError("sandbox survives SIGKILL", {{"error", std::string(killed.message())}});
  }
  return false;
}

}  // namespace torpor::gvisor
