#pragma once
// The node agent: what torpor.v1.NodeAgent and torpor.v1.WorkerSupport do on one machine.
//
// Order of life: construct, Recover (before anything is served), then every method from any thread,
// then destroy when no call runs any more. Methods with an operation block until it ended, on the
// caller's thread, under the operation's own deadline; a caller that leaves cancels nothing.
// A returned Operation, also one that FAILED, means accepted; an error means not accepted.
//
// It knows neither gRPC nor where its peers are: see worker_client.h, mover_client.h,
// registry_client.h.

#include <memory>
#include <string>
#include <vector>

#include "agent/core.h"
#include "agent/garbage_collector.h"
#include "agent/recovery.h"
#include "agent/registry_client.h"
#include "agent/sums_queue.h"
#include "base/status.h"
#include "model/operation_metrics.h"
#include "torpor/v1/node.pb.h"

namespace torpor::agent {

struct NodeAgentOptions {
  std::string node_name;
  std::string boot_id;
  // How long an unreachable worker or mover is asked again before it counts as gone.
  Duration unreachable_max = kUnreachableMax;
  GarbageRules garbage;
  int64_t image_bytes_max = 0;  // 0 = a tenth of the file system
  Duration image_min_age = std::chrono::minutes(2);
};

// All outlive the agent; `observer` may be null.
struct NodeAgentParts {
  const NodeDirs* dirs = nullptr;
  Workers* workers = nullptr;
  MoverClient* mover = nullptr;
  RegistryClient* registry = nullptr;
  Unpacker unpacker;
  Clock* clock = nullptr;
  IdSource* ids = nullptr;
  JournalObserver* observer = nullptr;
  MountList mounts = os::MountsBelow;
  OperationMetrics metrics;
  NodeMetrics node_metrics;
};

class NodeAgent {
 public:
  NodeAgent(NodeAgentOptions options, NodeAgentParts parts);
  ~NodeAgent();
  NodeAgent(const NodeAgent&) = delete;
  NodeAgent& operator=(const NodeAgent&) = delete;

  // Finishes or undoes what an earlier agent left (recovery.h); uploads go on in the background.
  // Once, before registering the node.
  Status Recover();

  StatusOr<torpor::v1::Operation> StartActor(const torpor::v1::StartActorRequest& request);
  StatusOr<torpor::v1::Operation> CaptureActor(const torpor::v1::CaptureActorRequest& request);
  StatusOr<torpor::v1::Operation> UploadSnapshot(const torpor::v1::UploadSnapshotRequest& request);
  StatusOr<torpor::v1::Operation> StopActor(const torpor::v1::StopActorRequest& request);
  StatusOr<torpor::v1::Operation> DeleteLocalSnapshots(
      const torpor::v1::DeleteLocalSnapshotsRequest& request);
  StatusOr<torpor::v1::Operation> GetOperation(const torpor::v1::GetOperationRequest& request);
  torpor::v1::Inventory GetInventory();

  // A worker process in slot `worker_id` says who it is.
  StatusOr<torpor::v1::RegisterWorkerResponse> RegisterWorker(const std::string& worker_id,
                                                              const torpor::v1::WorkerInfo& info);
  // Forwarded to the control plane; OK only when that has it, so the worker repeats otherwise.
  // PERMISSION_DENIED for an actor that this slot does not host.
  Status ReportExit(const std::string& worker_id, const torpor::v1::ExitReport& report);
  Status WishIdle(const std::string& worker_id, const torpor::v1::IdleWish& wish);
  Status WishAwake(const std::string& worker_id, const torpor::v1::AwakeWish& wish);

  // The control plane has the outcome: older local generations may go.
  void Acknowledged(const torpor::v1::Operation& operation);
  // Nobody there waits for the outcome.
  void NotWanted(const torpor::v1::Operation& operation);
  // An order that came with a registration or a lease: the sandbox is stopped, its data stays.
  Status StopResident(const std::string& actor_uid);
  // Forgets what is old; every few minutes.
  void Maintain();

  // What the housekeeper calls, from one thread. Sums of acknowledged generations and images that
  // are not flushed yet; `stop` ends the former early.
  bool HasUnfinished() const { return !sums_.empty() || images_.HasUnflushed(); }
  void FinishInBackground(const std::function<bool()>& stop);
  Status CollectGarbage() { return collector_.Pass(); }
  // Images within their budget, and how much of the disk is what.
  void TidyCaches();
  torpor::v1::DiskUsage Disk() const { return collector_.Disk(); }

  const NodeAgentOptions& options() const { return options_; }
  OperationTable& operations() { return operations_; }
  const Core& core() const { return core_; }

 private:
  template <typename Request>
  using Steps = Status (*)(const Core&, Op&, const Request&, torpor::v1::Operation*);
  // Checks, admits, runs, finishes.
  template <typename Request>
  StatusOr<torpor::v1::Operation> Perform(const char* method, const Request& request,
                                          Duration default_timeout, bool beside_others,
                                          torpor::v1::JournalRecord accepted, Steps<Request> steps);
  // Recovery: waits a moment for worker processes that were there before.
  void AwaitWorkers();
  RecoveryInput Observe();
  void ObserveCapture(const torpor::v1::CaptureActorRequest& request, ObservedOperation* out);
  void Execute(const RecoveryAction& action, const RecoveryInput& input);
  Status ExecuteOperation(const RecoveryAction& action, const ObservedOperation& observed, Op& op,
                          torpor::v1::Operation* outcome);
  // Runs the steps again on a background thread, from the beginning.
  template <typename Request>
  void RunAgain(std::shared_ptr<Op> op, Request request, Steps<Request> steps);

  OperationTable::Present IsHere() const;
  // Digests that running actors and local generations need.
  StatusOr<std::set<std::string>> PinnedImages() const;
  Status CheckHosted(const std::string& worker_id, const std::string& actor_uid) const;
  Status Forward(torpor::v1::ReportActorRequest request);

  const NodeAgentOptions options_;
  const OperationMetrics metrics_;
  RegistryClient* const registry_;
  LocalSnapshots snapshots_;
  ImageStore images_;
  OperationTable operations_;
  Residents residents_;
  Uploads uploads_;
  Reservations reservations_;
  const Core core_;
  SumsQueue sums_;
  GarbageCollector collector_;
  // Last, so that they end first: their work uses everything above.
  ThreadPool background_;  // uploads and stops that recovery started again
  ThreadPool janitor_;
};

}  // namespace torpor::agent
