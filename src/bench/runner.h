#pragma once
// Runs a scenario, or the limits alone, from fresh data directories to a RunResult.

#include <functional>
#include <memory>
#include <string>

#include "base/status.h"
#include "bench/bare.h"
#include "bench/result.h"
#include "bench/scenario.h"
#include "bench/world.h"
#include "os/process/reaper.h"

namespace torpor::bench {

struct RunOptions {
  WorldOptions world;             // paths of programs are filled in by the runner
  std::string runsc;              // empty = found in PATH
  std::string platform;           // empty = systrap where runsc has it
  std::string revision;           // of git, if the caller knows it
  bool limits = true;             // measure L1 and L2 around every repeat
  int64_t limit_samples = 0;      // of each limit; 0 = enough for a median
  int64_t requests = 2000;        // through door and router each, for L9
  std::vector<std::string> only;  // of the limits; empty = all
  std::map<std::string, std::string> overrides;
  std::function<bool()> stopped;  // by a signal
  std::function<void(const std::string& line)> progress;
};

// Belongs to one thread; the caller holds the MachineLock.
class Runner {
 public:
  static StatusOr<std::unique_ptr<Runner>> Create(RunOptions options, os::Reaper* reaper);

  // All repeats. CANCELLED when stopped.
  StatusOr<RunResult> Run(const Scenario& scenario);
  // L1, L2, L4, L5, L6, L8, L9 and the same requests through the router, with the memory of
  // `scenario`.
  StatusOr<RunResult> Limits(const Scenario& scenario);
  // One repeat against the Torpor of `spec`. `cycles` of bare runs before and after it are appended
  // to `blocks`.
  StatusOr<Repeat> RunRepeat(const Scenario& scenario, const StackOptions& spec, int cycles,
                             std::vector<BareSamples>* blocks);
  RunResult NewResult(const Scenario& scenario) const;
  const RunOptions& options() const { return options_; }

 private:
  Runner(RunOptions options, BareRuntime bare, os::Reaper* reaper);
  StatusOr<std::unique_ptr<World>> Start(const Scenario& scenario, const StackOptions& spec);
  Status MeasureBare(World* world, int cycles, std::vector<BareSamples>* blocks);
  Status MeasureRequests(World* world, const ActorView& actor, const std::string& name,
                         RunResult* result);
  Status MeasureActor(const Scenario& scenario, RunResult* result, Repeat* repeat);
  bool Wants(const std::string& limit) const;
  void Say(const std::string& line) const;
  void Sleep(Duration duration) const;

  const RunOptions options_;
  const BareRuntime bare_;
  os::Reaper* const reaper_;
};

// The limits of all blocks together, each with its drift.
std::vector<Limit> LimitsOf(const std::vector<BareSamples>& blocks);

}  // namespace torpor::bench
