#pragma once
// The service torpor.v1.Worker as a plain class: one worker process and the actors it hosts.
//
// Methods block until the operation ended and may be called from any thread; their answers and
// errors follow the rules in op_table.h. A failed capture says guest_alive, a failed start
// guest_ran in the metadata of its error. Everything is held in memory: the sandboxes end with the
// process, and the node agent keeps the journal.
//
// The tools, door and reporter outlive the service. Shutdown stops all actors.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "base/thread_pool.h"
#include "base/uuid.h"
#include "torpor/v1/worker.pb.h"
#include "worker/door/door.h"
#include "worker/exit_reporter.h"
#include "worker/freeze/freeze.h"
#include "worker/op_table.h"
#include "worker/workload.h"

namespace torpor::worker {

class WorkerService {
 public:
  // `info` holds what does not change: name, pool, class, capacity, runtime.
  WorkerService(const WorkloadTools& tools, Door* door, ExitReporter* exits, IdSource* ids,
                torpor::v1::WorkerInfo info);
  ~WorkerService();

  torpor::v1::WorkerInfo GetInfo() const EXCLUDES(mu_);
  StatusOr<torpor::v1::Operation> StartWorkload(const torpor::v1::StartWorkloadRequest& request);
  StatusOr<torpor::v1::Operation> CaptureWorkload(
      const torpor::v1::CaptureWorkloadRequest& request);
  StatusOr<torpor::v1::Operation> StopWorkload(const torpor::v1::StopWorkloadRequest& request);
  StatusOr<torpor::v1::Operation> GetOperation(const torpor::v1::GetOperationRequest& request);
  torpor::v1::ListWorkloadsResponse ListWorkloads() const EXCLUDES(mu_);
  torpor::v1::GetWorkloadStatsResponse GetWorkloadStats(
      const torpor::v1::GetWorkloadStatsRequest& request) const EXCLUDES(mu_);

  // What the agent answered to RegisterWorker; makes the worker ready.
  void SetRegistration(const torpor::v1::RegisterWorkerResponse& registration) EXCLUDES(mu_);
  // Refuses new work, stops every actor, waits for the clean-up. Idempotent.
  void Shutdown() EXCLUDES(mu_);

 private:
  enum class State {
    kStarting,
    kRunning,
    kCapturing,
    kStopping,
    kReleasing,  // the guest is gone, its surroundings are being removed
  };
  struct Entry {
    std::shared_ptr<Workload> workload;
    State state = State::kStarting;
  };

  Status DoStart(const torpor::v1::StartWorkloadRequest& request, Op& op) EXCLUDES(mu_);
  Status DoCapture(const torpor::v1::CaptureWorkloadRequest& request, Op& op) EXCLUDES(mu_);
  Status DoStop(const torpor::v1::StopWorkloadRequest& request, Op& op) EXCLUDES(mu_);
  Status Admit(const std::shared_ptr<Workload>& workload, MonotonicTime deadline) EXCLUDES(mu_);
  // The running workload of `uid`, now in `state`; null when there is none (any more).
  StatusOr<std::shared_ptr<Workload>> Claim(const std::string& uid, State state,
                                            MonotonicTime deadline) EXCLUDES(mu_);
  Status WaitReleased(const std::string& uid, MonotonicTime deadline) REQUIRES(mu_);
  Status Drain(const torpor::v1::CaptureWorkloadRequest& request, MonotonicTime deadline);
  Status GoOnAfter(const std::shared_ptr<Workload>& workload, Status status) EXCLUDES(mu_);
  // Removes the surroundings in the background, then forgets the actor.
  void ReleaseLater(std::shared_ptr<Workload> workload) EXCLUDES(mu_);
  void StopRunning() REQUIRES(mu_);
  // The guest ended by itself.
  void HandleExit(const std::weak_ptr<Workload>& ended) EXCLUDES(mu_);
  // Unless an operation has it: stops, reports and releases it. `stuck` is the watchdog's verdict.
  void End(std::shared_ptr<Workload> workload, bool stuck) EXCLUDES(mu_);
  // Ends guests that are stuck at their memory limit; on a thread of its own.
  void WatchMemory() EXCLUDES(mu_);
  // Empty when the watch is over.
  std::optional<std::vector<std::shared_ptr<Workload>>> AwaitRunning(MonotonicTime time)
      EXCLUDES(mu_);
  void FillCaptureResult(const torpor::v1::CaptureWorkloadRequest& request,
                         const runtime::CaptureOutcome& outcome, Op& op) const;

  const WorkloadTools tools_;
  Door* const door_;
  ExitReporter* const exits_;
  IdSource* const ids_;
  OpTable ops_;
  mutable Mutex mu_;
  CondVar changed_;
  torpor::v1::WorkerInfo info_ GUARDED_BY(mu_);
  std::map<std::string, Entry> entries_ GUARDED_BY(mu_);  // by actor uid
  bool shutting_down_ GUARDED_BY(mu_) = false;
  bool watch_ended_ GUARDED_BY(mu_) = false;
  CondVar watch_;
  std::thread watchdog_;
  IdleFreezer freezer_;
  std::unique_ptr<ThreadPool> background_;  // the last member: its threads use the others
};

}  // namespace torpor::worker
