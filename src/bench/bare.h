#pragma once
// The physical limits L1 and L2: checkpoint and restore by runsc's own commands, spawned here.
//
// Same bundle, same flags, same memory as the actor of the scenario, in a network namespace of the
// same kind, outside any memory limit; no part of Torpor runs between a command and its end. The
// command lines are the runtime's own (runtime/gvisor/commands.h), so that both sides change
// together.

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/scenario.h"
#include "os/process/reaper.h"
#include "runtime/gvisor/commands.h"
#include "worker/network/gateway.h"

namespace torpor::bench {

struct BareRuntime {
  gvisor::RunscTarget target;
  std::string helper;  // start helper
  bool hide_net_core = false;
};
// `runsc` empty = found in PATH. `platform` empty = systrap where runsc has it.
StatusOr<BareRuntime> FindBareRuntime(const std::string& runsc, const std::string& platform);

struct BareSamples {
  std::vector<double> checkpoint;   // L1: until the command ended
  std::vector<double> gone;         // the same until the sandbox was gone
  std::vector<double> restore;      // L2: until the first 200 of the probe
  std::vector<double> restore_run;  // the part of it until the command ended
  double cached = 0;                // of the last image, when it was restored
};

// Belongs to one thread. Needs root. Removes what it made.
class BareRuns {
 public:
  // `work_dir` is made, on the file system of the snapshots.
  static StatusOr<std::unique_ptr<BareRuns>> Create(const BareRuntime& runtime,
                                                    const std::string& work_dir,
                                                    os::Reaper* reaper);
  ~BareRuns();

  // Boots the bundle with this config.json (absolute root path), fills its memory, then hibernates
  // and wakes it `cycles` + 1 times with the scenario's work and waits in between. The first cycle
  // is discarded: its files and memory are touched for the first time. Appends to `samples`.
  Status Block(const std::string& config, const Scenario& scenario, int cycles,
               const std::function<bool()>& stopped, BareSamples* samples);

 private:
  struct Sandbox;
  BareRuns(const BareRuntime& runtime, std::string work_dir, os::Reaper* reaper,
           std::unique_ptr<worker::Gateway> gateway);
  StatusOr<std::unique_ptr<Sandbox>> Prepare(const std::string& config);
  Status Launch(Sandbox* sandbox, const std::vector<std::string>& command);
  Status Cycle(std::unique_ptr<Sandbox>* sandbox, const std::string& config,
               const Scenario& scenario, BareSamples* samples);
  Status Checkpoint(Sandbox* sandbox, const std::string& image, BareSamples* samples);
  Status Restore(Sandbox* sandbox, const std::string& image, BareSamples* samples);
  Status Work(Sandbox* sandbox, const Scenario& scenario, bool fill);

  const BareRuntime runtime_;
  const std::string work_dir_;
  os::Reaper* const reaper_;
  const std::unique_ptr<worker::Gateway> gateway_;
  int next_ = 0;
};

// The config.json that Torpor's runtime gives to runsc for this running actor.
StatusOr<std::string> BundleOfActor(const std::string& node_dir, const std::string& uid,
                                    const std::string& container);

// What killed drivers left: namespaces; sandboxes below one data directory.
Status RemoveBareLeftovers();
Status RemoveBareSandboxes(const std::string& dir);

}  // namespace torpor::bench
