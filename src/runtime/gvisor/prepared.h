#pragma once
// A sandbox made in advance by `runsc create`, into which an image is restored through the control
// socket. Internal; see PreparedSandbox in runtime.h.

#include <memory>
#include <string>

#include "base/status.h"
#include "base/thread_pool.h"
#include "os/process/reaper.h"
#include "runtime/gvisor/commands.h"
#include "runtime/gvisor/page_cache.h"
#include "runtime/runtime.h"

namespace torpor::gvisor {

// Empty unless `args` are a restore of one container without volumes from a complete memory image.
// Otherwise what the container is (its config without the host name, which is the guest's own and
// comes with the image).
std::string PreparationKey(const runtime::StartArgs& args);

// `target` has control calls and outlives the sandbox, like the others.
StatusOr<std::unique_ptr<runtime::PreparedSandbox>> PrepareSandbox(
    const RunscTarget& target, const std::string& helper, bool hide_net_core, os::Reaper* reaper,
    ThreadPool* notifier, PageCache* page_cache, const runtime::StartArgs& args);

}  // namespace torpor::gvisor
