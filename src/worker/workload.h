#pragma once
// One actor in a worker: its sandbox and everything made around it.
//
// Made for one activation. Start makes network, cgroup leaf and log pipes, starts the sandbox and
// waits for readiness; whatever ends it (Capture, Stop, the guest itself, a failed Start) is
// followed by Release. The calls come from one operation at a time; exit() and uid() may be asked
// by any thread. Nothing here knows operations ids or the door's protocol.

#include <atomic>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "model/operation_metrics.h"
#include "model/phases.h"
#include "os/cgroup/cgroup_tree.h"
#include "os/fs/dir_fd.h"
#include "runtime/runtime.h"
#include "torpor/v1/worker.pb.h"
#include "worker/freeze/freeze.h"
#include "worker/leaf_names.h"
#include "worker/logs/log_pump.h"
#include "worker/network/actor_network.h"
#include "worker/pool/warm_pool.h"
#include "worker/priority_semaphore.h"
#include "worker/watchdog.h"

namespace torpor::worker {

// What all workloads of a worker share; outlives them.
struct WorkloadTools {
  runtime::Runtime* runtime = nullptr;
  NetworkProvider* network = nullptr;
  os::CgroupTree* cgroups = nullptr;           // null = without limits (the fake runtime)
  WarmPool* pool = nullptr;                    // null = every start makes its sandbox
  PrioritySemaphore* memory_images = nullptr;  // held while one is read or written; null = no limit
  LogPump* logs = nullptr;
  const os::DirFd* node_dir = nullptr;
  std::string node_path;  // of node_dir, absolute
  Clock* clock = nullptr;
  OperationMetrics metrics;
  MemoryWatch memory_watch;
};

class Workload : public std::enable_shared_from_this<Workload> {
 public:
  // `on_exit` is called at most once, from any thread, when the guest ends by itself; it must not
  // block.
  Workload(const WorkloadTools* tools, torpor::v1::StartWorkloadRequest request,
           std::function<void()> on_exit);
  ~Workload();

  // Ends early, with `interrupted()` as the error, when `wake_fd` becomes readable. On failure the
  // sandbox is gone (Release is still to be called) and the error says guest_ran in its metadata.
  Status Start(MonotonicTime deadline, int wake_fd, const std::function<Status()>& interrupted,
               PhaseRecorder* phases);
  // After the door has drained. Nothing happens when `wake_fd` becomes readable before its turn;
  // `interrupted()` is the error then.
  StatusOr<runtime::CaptureOutcome> Capture(const torpor::v1::CaptureWorkloadRequest& request,
                                            MonotonicTime deadline, int wake_fd,
                                            const std::function<Status()>& interrupted,
                                            PhaseRecorder* phases, bool* guest_alive);
  Status Stop(Duration grace);
  // Ends reading the logs; the answer of an operation may promise complete logs after it.
  void FinishLogs();
  // Removes leaf and network of a sandbox that is gone. Takes tens of milliseconds. Idempotent.
  Status Release();

  // Thaws the guest first.
  StatusOr<UniqueFd> Dial(int port) const;
  // Thaws the guest; it is not frozen again before as many calls of AllowFreezing.
  Status HoldAwake();
  void AllowFreezing();
  // Null when it is never to be frozen. Set by a successful Start.
  std::shared_ptr<FreezableGuest> freezable() const { return freezable_; }
  StatusOr<torpor::v1::WorkloadStats> Stats() const;

  // For the watchdog; fails without a cgroup.
  StatusOr<MemorySample> SampleMemory() const;
  // The watchdog's verdict: what ends the actor now is its lack of memory. Before Stop.
  void NoteStuck() { stuck_ = true; }

  const std::string& uid() const { return request_.op().actor_uid(); }
  int64_t generation() const { return request_.op().generation(); }
  const torpor::v1::StartWorkloadRequest& request() const { return request_; }
  // How the guest ended by itself, if it did.
  std::optional<runtime::SandboxExit> exit() const;
  // The report of such an end, with the last lines of its output.
  torpor::v1::ExitReport MakeExitReport(const std::string& event_id) const;

 private:
  struct ExitState;

  Status MakeSurroundings();
  // The guest sees that its connections are gone. A few 100 us; bounded.
  void Settle();
  os::CgroupLimits Limits() const;
  Status OpenLogs(std::map<std::string, OutputPipes> pipes);
  // What belongs to the actor, not to its surroundings.
  StatusOr<runtime::StartArgs> MakeArgs(MonotonicTime deadline, PhaseRecorder* phases) const;
  bool TakeSlot(const std::string& key);
  Status RunInSlot(const runtime::StartArgs& args, bool* guest_ran);
  void DropSlot();
  void NoteStarted();
  void TellPool() const;
  // A turn to read or write a memory image; at once where nothing limits that. CANCELLED when
  // `wake_fd` becomes readable first.
  StatusOr<PrioritySemaphore::Permit> AwaitTurn(Priority priority, torpor::v1::Fidelity fidelity,
                                                MonotonicTime deadline, int wake_fd,
                                                PhaseRecorder* phases) const;
  Status RunSandbox(MonotonicTime deadline, int wake_fd, PhaseRecorder* phases, bool* guest_ran);
  Status FillVolumes(MonotonicTime deadline, PhaseRecorder* phases) const;
  Status Probe(MonotonicTime deadline, int wake_fd, PhaseRecorder* phases);
  Status CheckRestoreFiles(const os::DirFd& dir) const;
  StatusOr<std::string> Resolve(const std::string& path, bool make) const;
  // WORKLOAD_EXITED or OUT_OF_MEMORY, if the guest has ended.
  std::optional<Status> ExitError() const;
  // Set when the kernel killed something of the leaf for want of memory, or nothing went on.
  std::optional<os::CgroupUsage> OutOfMemory() const;

  const WorkloadTools* const tools_;
  const torpor::v1::StartWorkloadRequest request_;
  const std::shared_ptr<ExitState> exit_;
  WallTime start_time_;
  std::atomic<bool> stuck_{false};
  std::string pool_key_;                       // empty = no sandbox of the pool would do
  std::unique_ptr<PoolSlot> slot_;             // when the sandbox came from the pool
  std::string leaf_;                           // the actor's or the slot's; empty = there is none
  std::shared_ptr<FreezableGuest> freezable_;  // null = it is never frozen
  std::shared_ptr<ActorNetwork> network_;
  std::unique_ptr<LogSession> logs_;
  std::unique_ptr<runtime::Sandbox> sandbox_;
};

}  // namespace torpor::worker
