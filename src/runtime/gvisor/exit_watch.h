#pragma once
// Whether the end of a guest is news or was asked for. Internal.

#include <functional>
#include <optional>

#include "base/sync.h"
#include "base/thread_pool.h"
#include "os/process/process.h"
#include "runtime/runtime.h"

namespace torpor::gvisor {

// The first end counts, be it of the sentry or of one of several containers. Thread-safe.
class ExitWatch {
 public:
  ExitWatch(std::function<void(runtime::SandboxExit)> on_exit, ThreadPool* notifier)
      : on_exit_(std::move(on_exit)), notifier_(notifier) {}
  // The sentry has ended; on the reaper's thread.
  void Exited(os::ExitStatus status) EXCLUDES(mu_);
  void Exited(runtime::SandboxExit how) EXCLUDES(mu_);
  // From now on an end is expected; false when it has happened before.
  bool Expect() EXCLUDES(mu_);
  // No longer expected; one that happened meanwhile is reported now.
  void Unexpect() EXCLUDES(mu_);

 private:
  void ReportLocked() REQUIRES(mu_);

  Mutex mu_;
  std::function<void(runtime::SandboxExit)> on_exit_ GUARDED_BY(mu_);  // null once it was called
  ThreadPool* const notifier_;
  bool expected_ GUARDED_BY(mu_) = false;
  std::optional<runtime::SandboxExit> how_ GUARDED_BY(mu_);
};

}  // namespace torpor::gvisor
