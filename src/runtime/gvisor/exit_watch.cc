#include "runtime/gvisor/exit_watch.h"

namespace torpor::gvisor {

void ExitWatch::Exited(os::ExitStatus status) {
  Exited(runtime::SandboxExit{.exit_code = status.ShellCode(), .signal = status.signal});
}

void ExitWatch::Exited(runtime::SandboxExit how) {
  MutexLock lock(&mu_);
  if (!how_.has_value()) how_ = std::move(how);
  if (!expected_) ReportLocked();
}

bool ExitWatch::Expect() {
  MutexLock lock(&mu_);
  bool before = how_.has_value();
  expected_ = true;
  return !before;
}

void ExitWatch::Unexpect() {
  MutexLock lock(&mu_);
  expected_ = false;
  if (how_.has_value()) ReportLocked();
}

void ExitWatch::ReportLocked() {
  if (!on_exit_) return;
  notifier_->Run([on_exit = std::move(on_exit_), how = *how_] { on_exit(how); });
  on_exit_ = nullptr;
}

}  // namespace torpor::gvisor
