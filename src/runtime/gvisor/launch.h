#pragma once
// One start of a runsc command that makes a sandbox, and what comes before and after it. Internal.

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "os/process/reaper.h"
#include "runtime/gvisor/commands.h"
#include "runtime/gvisor/page_cache.h"
#include "runtime/gvisor/sandbox.h"
#include "runtime/runtime.h"

namespace torpor::gvisor {

// The whole content of a small file.
StatusOr<std::string> ReadFile(const std::string& path);

// A container to be started, in the order of starting: the root one first.
struct Member {
  StatePaths paths;
  std::string id;
  std::string name;  // in `stdio`; the pause container's stands in no spec
  bool pause = false;
};
// The only container of `args`, or the pause container and then its containers.
std::vector<Member> MembersOf(const runtime::StartArgs& args);

// The directories and the bundles of a sandbox.
Status PrepareState(const std::vector<Member>& members, const runtime::StartArgs& args);

// The image of a restore, checked and about to be read.
struct ImageLoad {
  std::unique_ptr<PageCache::Use> use;  // Loaded() is to be called once the guest has all of it
  bool direct = false;                  // its pages are read past the page cache
};
// Reads ahead what the sandbox will read through the page cache, so that it is charged to us.
StatusOr<ImageLoad> BeginLoad(const RunscTarget& target, PageCache* page_cache,
                              const runtime::StartArgs& args);

// The surroundings that `args` ask for.
Surroundings SurroundingsOf(const runtime::StartArgs& args, const StatePaths& paths,
                            const std::string& helper, bool hide_net_core);

// One run of `command` for `member`, which gets its output: OK when runsc said that it did what
// `verb` means. When its deadline passed, `*may_have_run` is set: nobody knows.
Status Launch(const std::vector<std::string>& command, const std::string& verb,
              const Member& member, const runtime::StartArgs& args, bool* may_have_run);

// The sentry that a command started at `started` wrote into the pid file.
StatusOr<std::unique_ptr<os::Reaper::Watched>> WatchSentry(os::Reaper* reaper,
                                                           const StatePaths& paths,
                                                           MonotonicTime started,
                                                           std::shared_ptr<ExitWatch> exit_watch);

}  // namespace torpor::gvisor
