#pragma once
// The containers of a sandbox with several, all but its root one. Internal.
//
// The sentry's end says nothing about them, so each has a `runsc wait`, whose end is awaited by a
// thread of this object. Thread-compatible; the target outlives it.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "os/process/process.h"
#include "runtime/gvisor/commands.h"
#include "runtime/runtime.h"

namespace torpor::gvisor {

class AppContainers {
 public:
  // `names` run in the sandbox of `paths`, whose root container is `root_id`. `on_end` is called at
  // most once, on this object's thread: how the first of them ended, or why that is not known.
  static StatusOr<std::unique_ptr<AppContainers>> Watch(
      const RunscTarget& target, const StatePaths& paths, const std::string& root_id,
      const std::vector<std::string>& names,
      std::function<void(StatusOr<runtime::SandboxExit>)> on_end);
  // Ends the waiting, not the containers. `on_end` does not run after this returned.
  ~AppContainers();
  AppContainers(const AppContainers&) = delete;
  AppContainers& operator=(const AppContainers&) = delete;

  // Of a sandbox that stands still: OK when every container lives; WORKLOAD_EXITED names one that
  // does not.
  Status CheckAlive(MonotonicTime deadline) const;
  // SIGTERM to each; returns when all have ended, at the latest at `deadline`.
  void Terminate(MonotonicTime deadline);

 private:
  struct Container {
    std::string name, id;
    os::Process wait;
    UniqueFd answer;  // where it writes
  };

  AppContainers(const RunscTarget& target, const StatePaths& paths)
      : target_(target), paths_(paths) {}
  void Await(const std::function<void(StatusOr<runtime::SandboxExit>)>& on_end);

  const RunscTarget& target_;
  const StatePaths paths_;
  std::vector<Container> containers_;  // as long as the thread runs, it alone calls Wait()
  UniqueFd stop_;
  std::thread thread_;
};

// What `runsc wait` prints when a container has ended: its exit code.
StatusOr<int> ParseWait(const std::string& output);
// What `runsc list -format=json` prints: the state of each container by its id.
StatusOr<std::map<std::string, std::string>> ParseList(const std::string& output);

}  // namespace torpor::gvisor
