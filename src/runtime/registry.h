#pragma once
// The runtimes of this program, by the name that --class takes. A new runtime is one folder beside
// this file, one line in registry.cc and a pass of the contract suite.

#include <memory>
#include <string>
#include <vector>

#include "base/metrics.h"
#include "base/status.h"
#include "os/process/reaper.h"
#include "runtime/runtime.h"

namespace torpor::runtime {

struct RuntimeConfig {
  std::string binary;  // of the sandbox runtime; empty = the class's usual name in PATH
  std::string helper;  // start helper; empty = torpor-enter beside our own executable
  std::string platform = "auto";
  std::string work_dir;          // for the smoke test; exists, on the file system of the snapshots
  bool control_socket = true;    // use runsc's where it works; else its command line only
  os::Reaper* reaper = nullptr;  // outlives the runtime; not needed by `fake`
  MetricRegistry* metrics = nullptr;  // may be null
};

// Probes the machine: takes up to 20 s. NOT_FOUND for an unknown class or a missing program,
// FAILED_PRECONDITION when this machine cannot run it; the message says what to do.
StatusOr<std::unique_ptr<Runtime>> CreateRuntime(const std::string& sandbox_class,
                                                 const RuntimeConfig& config);
std::vector<std::string> RuntimeClasses();

}  // namespace torpor::runtime
