#pragma once
// A sandbox runtime: how a worker boots, restores, captures and ends the sandbox of one actor.
//
// The worker makes the surroundings (directories, network namespace, cgroup leaf, log pipes) and
// owns them; the runtime owns the processes inside. One Runtime per worker, thread-safe; calls for
// different sandboxes run in parallel, calls for one sandbox are serialised by the worker. Paths
// are absolute. No call outlives its deadline by more than the teardown (30 s).
//
// Errors: INVALID_ARGUMENT FIDELITY_UNSUPPORTED before anything is touched; FAILED_PRECONDITION
// RUNTIME_INCOMPATIBLE when a snapshot cannot be read by this runtime; DATA_LOSS SNAPSHOT_CORRUPT;
// INTERNAL RUNTIME_FAILED with the tail of the runtime's own log; DEADLINE_EXCEEDED.

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "model/phases.h"
#include "torpor/v1/common.pb.h"

namespace torpor::os {
class CgroupTree;
}

namespace torpor::runtime {

// What this runtime can do on this machine; probed, never derived from a version.
struct Capabilities {
  ateapi::SandboxClass sandbox_class = ateapi::SANDBOX_CLASS_UNSPECIFIED;
  std::string runtime;          // "runsc"
  std::string runtime_version;  // as it prints it
  std::string platform;         // "systrap"
  std::string architecture;     // "amd64"
  std::vector<std::string> cpu_features;
  std::vector<torpor::v1::Fidelity> fidelities;
  bool prepares = false;  // sandboxes can be made in advance
};

// Where the container writes; the worker drains the other ends. Not owned.
struct ContainerStdio {
  int stdout_fd = -1;
  int stderr_fd = -1;
};

struct StartArgs {
  std::string sandbox_id;  // the actor's uid
  torpor::v1::WorkloadSpec spec;
  std::string bundles_dir;  // <bundles_dir>/<container>/config.json, complete
  std::string state_dir;    // the runtime's own files for this sandbox; empty at start
  // Set for a restore: directory with exactly `files`. A preserved directory is read-only: its
  // files may be read and mapped privately, never unlinked, truncated, renamed or written.
  std::string restore_dir;
  // Unset = cold boot; VOLUMES is one too, the worker has unpacked the volumes by then.
  torpor::v1::Fidelity restore_fidelity = torpor::v1::FIDELITY_UNSPECIFIED;
  std::vector<torpor::v1::SnapshotFile> files;
  bool preserve_restore = false;
  std::string netns_path;  // entered by the start helper; empty = stay (fake runtime)
  // cgroup.procs files; the sandbox's first process writes itself into each before it is executed,
  // so the sandbox is born inside its cgroup.
  std::vector<std::string> cgroup_procs_files;
  // The leaf of those files, for a runtime that looks at its processes and moves one of them for
  // the time of a capture. Not owned, outlives the sandbox; null = there is none.
  os::CgroupTree* cgroups = nullptr;
  std::string cgroup_leaf;
  // Sets the sandbox's addresses in the network namespace again; called right before every process
  // that takes them (runsc removes them from the interface). May be null.
  std::function<Status()> prepare_network;
  std::map<std::string, ContainerStdio> stdio;  // by container name
  MonotonicTime deadline;
  PhaseRecorder* phases = nullptr;  // boot or restore is recorded here
};

struct CaptureArgs {
  torpor::v1::Fidelity fidelity = torpor::v1::FIDELITY_MEMORY;
  std::string capture_dir;  // exists and is empty
  bool leave_running = false;
  // Saves the actor's volumes as files of capture_dir and returns them; null when it has none.
  // Called at most once, while the guest stands still for good or can still be woken: between
  // pausing and ending it (VOLUMES), or after its memory was saved (MEMORY). When it fails the
  // capture fails; of VOLUMES the guest then goes on.
  std::function<StatusOr<std::vector<torpor::v1::SnapshotFile>>()> pack_volumes;
  MonotonicTime deadline;
  PhaseRecorder* phases = nullptr;  // checkpoint is recorded here
};

struct CaptureOutcome {
  std::vector<torpor::v1::SnapshotFile> files;  // exactly what lies in capture_dir
};

// How a capture failed decides what happens to the actor.
struct CaptureFailure {
  Status status;
  bool guest_alive = false;  // proven: it answers and its limits are in place
};

// How the guest ended by itself. Of several containers the first that ends ends the guest.
struct SandboxExit {
  int exit_code = 0;
  int signal = 0;
  std::string container;  // which of several it was; empty = the sandbox as a whole
};

class Sandbox {
 public:
  virtual ~Sandbox() = default;  // does not stop the sandbox
  // After success without leave_running the sandbox is gone and Stop has only to tidy up. On
  // failure `failure->guest_alive` says whether the guest goes on.
  virtual StatusOr<CaptureOutcome> Capture(const CaptureArgs& args, CaptureFailure* failure) = 0;
  // Ends the guest (SIGTERM first when grace > 0), tears down in reverse order, collects errors.
  // Idempotent; OK also when there was nothing left.
  virtual Status Stop(Duration grace) = 0;
  // Process that stands for the guest's life (the sentry); for pidfd watching and statistics.
  virtual pid_t main_pid() const = 0;
};

// A sandbox that was made before it is known which actor will live in it. It holds no guest.
// Restore and Discard are called at most once, one of them, by one thread.
class PreparedSandbox {
 public:
  virtual ~PreparedSandbox() = default;  // does not end it
  // Its processes live; any thread may ask.
  virtual bool alive() const = 0;
  // As Runtime::Start of a MEMORY restore. Of `args` counts what belongs to the actor: the image,
  // volumes, deadline, phases; network, cgroup, output and state_dir are those given to Prepare. On
  // failure everything of the sandbox is gone.
  virtual StatusOr<std::unique_ptr<Sandbox>> Restore(const StartArgs& args,
                                                     std::function<void(SandboxExit)> on_exit,
                                                     bool* guest_ran) = 0;
  // Ends it and removes the content of its state_dir. OK also when there was nothing left.
  virtual Status Discard() = 0;
};

class Runtime {
 public:
  virtual ~Runtime() = default;
  virtual const Capabilities& capabilities() const = 0;
  // Returns when the guest runs (not yet: answers). `on_exit` is called once, from any thread, if
  // the guest ends without Capture or Stop having been asked; Stop then ends what is left of it.
  // On failure everything of the sandbox is gone; `*guest_ran` says whether the guest may have
  // executed an instruction.
  virtual StatusOr<std::unique_ptr<Sandbox>> Start(const StartArgs& args,
                                                   std::function<void(SandboxExit)> on_exit,
                                                   bool* guest_ran) = 0;
  // What a prepared sandbox depends on: one made from some args can restore the images of all args
  // with the same key. Empty = this start cannot use a prepared sandbox.
  virtual std::string PreparationKey(const StartArgs&) const { return ""; }
  // Makes a sandbox from spec, bundle and surroundings of `args`, which wants no image. Only for
  // args that have a key. On failure everything of it is gone.
  virtual StatusOr<std::unique_ptr<PreparedSandbox>> Prepare(const StartArgs&) {
    return Error(Code::kUnimplemented, "NOT_IMPLEMENTED", "sandboxes cannot be made in advance");
  }
  // Removes whatever an earlier worker left of `sandbox_id` (state_dir as in StartArgs).
  virtual Status CleanUp(const std::string& sandbox_id, const std::string& state_dir) = 0;
};

}  // namespace torpor::runtime
