#pragma once
// Processes of a sandbox that nobody holds a handle of.

#include <sys/types.h>

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/time.h"

namespace torpor::gvisor {

// Sentry, gofer and runsc commands whose --root is `root`. Reads the whole process table: for
// failures and clean-up, not for a wake.
std::vector<pid_t> FindByRoot(const std::string& root);
// argv[0] of the process; empty when there is none.
std::string ProgramOf(pid_t pid);

// True when no thread of the process will execute an instruction of its own any more: each is past
// the point in exit(2) of no return (PF_EXITING). Call it after a SIGKILL was sent: then no thread
// can be added. False when there is no such process.
bool OnlyExitingThreads(pid_t pid);
// Whether a /proc/<pid>/task/<tid>/stat says so of a thread.
bool IsExiting(std::string_view stat);

// Kills what `find` returns, again and again, until it returns nothing. DEADLINE_EXCEEDED names the
// processes that stay.
Status KillUntilGone(const std::function<std::vector<pid_t>()>& find, MonotonicTime deadline);

}  // namespace torpor::gvisor
