#pragma once
// Proof that a guest boots, is captured and goes on after a restore on this machine.

#include <string>

#include "base/status.h"
#include "base/time.h"
#include "runtime/runtime.h"

namespace torpor::gvisor {

// Runs a program that counts in `runtime` below a new directory in `work_dir`, which is removed
// again. FAILED_PRECONDITION says which step failed and how.
Status SmokeTest(runtime::Runtime& runtime, const std::string& netns_path,
                 const std::string& work_dir, MonotonicTime deadline);

// Ends and removes what smoke tests of a killed process left in `work_dir`, which no other process
// may be using.
Status RemoveSmokeLeftovers(const std::string& work_dir, MonotonicTime deadline);

}  // namespace torpor::gvisor
