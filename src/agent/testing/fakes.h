#pragma once
// A worker, a mover and a control plane in memory, for tests of the agent. They outlive the agents
// of one test, as the real processes do, and answer a repeated operation id with the first outcome.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/image_store.h"
#include "agent/mover_client.h"
#include "agent/registry_client.h"
#include "agent/worker_client.h"
#include "base/sync.h"
#include "os/fs/dir_fd.h"

namespace torpor::agent {

// Outcomes by operation id. Thread-safe.
class FakeOperations {
 public:
  using Work = std::function<Status(torpor::v1::Operation*)>;
  torpor::v1::Operation Run(const torpor::v1::OpHeader& header, const std::string& method,
                            const Work& work) EXCLUDES(mu_);
  StatusOr<torpor::v1::Operation> Get(const torpor::v1::GetOperationRequest& request) EXCLUDES(mu_);

 private:
  Mutex mu_;
  std::map<std::string, torpor::v1::Operation> done_ GUARDED_BY(mu_);
  std::set<std::string> refused_ GUARDED_BY(mu_);
};

// A sandbox remembers one text, its memory: "boot" at first, one "+" more at every capture.
class FakeWorker {
 public:
  explicit FakeWorker(const os::DirFd* node_dir) : node_dir_(node_dir) {}

  torpor::v1::WorkerInfo Info() const;
  // The next call of `method` fails with `status` as its outcome.
  void FailNext(const std::string& method, Status status) EXCLUDES(mu_);
  // The next call of `method` does its work, but the answer is lost.
  void LoseNext(const std::string& method) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    lost_.insert(method);
  }
  // The next capture succeeds without any file.
  void CaptureNothing() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    capture_nothing_ = true;
  }
  // What the next capture leaves besides its files.
  void LeaveInCapture(const std::string& name) EXCLUDES(mu_);
  // The process ends with its sandboxes and outcomes; calls fail until Restart.
  void Kill() EXCLUDES(mu_);
  void Restart() EXCLUDES(mu_);
  // The next start, capture or stop ends the process, before or after its work.
  void DieInCall(bool after_work) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    dies_after_work_ = after_work;
  }

  bool Hosts(const std::string& uid) const EXCLUDES(mu_);
  std::string MemoryOf(const std::string& uid) const EXCLUDES(mu_);
  int starts() const EXCLUDES(mu_);
  torpor::v1::StartWorkloadRequest last_start() const EXCLUDES(mu_);
  // A sandbox that no agent asked for.
  void AddSandbox(const std::string& uid) EXCLUDES(mu_);

  // Calls of clients.
  StatusOr<torpor::v1::Operation> Start(const torpor::v1::StartWorkloadRequest& request);
  StatusOr<torpor::v1::Operation> Capture(const torpor::v1::CaptureWorkloadRequest& request);
  StatusOr<torpor::v1::Operation> Stop(const torpor::v1::StopWorkloadRequest& request);
  StatusOr<torpor::v1::Operation> Get(const torpor::v1::GetOperationRequest& request);
  StatusOr<torpor::v1::ListWorkloadsResponse> List() EXCLUDES(mu_);
  StatusOr<torpor::v1::WorkerInfo> GetInfo() EXCLUDES(mu_);

  std::string worker_uid;  // as given at registration
  int64_t epoch = 0;

 private:
  struct Sandbox {
    std::string memory;
    int64_t generation = 0;
  };
  StatusOr<torpor::v1::Operation> Answer(const std::string& method, torpor::v1::Operation outcome)
      EXCLUDES(mu_);
  Status TakeFailure(const std::string& method) EXCLUDES(mu_);
  Status CheckAlive() const EXCLUDES(mu_);
  // CheckAlive, and UNAVAILABLE where the process is to end.
  Status PassDeath(bool after_work) EXCLUDES(mu_);

  const os::DirFd* const node_dir_;
  mutable Mutex mu_;
  std::unique_ptr<FakeOperations> operations_ = std::make_unique<FakeOperations>();
  std::map<std::string, Sandbox> sandboxes_ GUARDED_BY(mu_);
  std::map<std::string, Status> failures_ GUARDED_BY(mu_);
  std::set<std::string> lost_ GUARDED_BY(mu_);
  std::string left_over_ GUARDED_BY(mu_);
  bool capture_nothing_ GUARDED_BY(mu_) = false;
  bool alive_ GUARDED_BY(mu_) = true;
  std::optional<bool> dies_after_work_ GUARDED_BY(mu_);
  int starts_ GUARDED_BY(mu_) = 0;
  torpor::v1::StartWorkloadRequest last_start_ GUARDED_BY(mu_);
};

// One agent's connection to the worker; a crashed agent's is cut.
class FakeWorkerClient : public WorkerClient {
 public:
  FakeWorkerClient(FakeWorker* worker, std::shared_ptr<std::atomic<bool>> cut)
      : worker_(worker), cut_(std::move(cut)) {}
  StatusOr<torpor::v1::WorkerInfo> GetInfo(Duration timeout) override;
  StatusOr<torpor::v1::Operation> StartWorkload(const torpor::v1::StartWorkloadRequest& request,
                                                Duration timeout) override;
  StatusOr<torpor::v1::Operation> CaptureWorkload(const torpor::v1::CaptureWorkloadRequest& request,
                                                  Duration timeout) override;
  StatusOr<torpor::v1::Operation> StopWorkload(const torpor::v1::StopWorkloadRequest& request,
                                               Duration timeout) override;
  StatusOr<torpor::v1::Operation> GetOperation(const torpor::v1::GetOperationRequest& request,
                                               Duration timeout) override;
  StatusOr<torpor::v1::ListWorkloadsResponse> ListWorkloads(Duration timeout) override;
  StatusOr<torpor::v1::GetWorkloadStatsResponse> GetWorkloadStats(
      const torpor::v1::GetWorkloadStatsRequest& request, Duration timeout) override;

 private:
  FakeWorker* const worker_;
  const std::shared_ptr<std::atomic<bool>> cut_;
};

// Object storage as a map, images out of nothing.
class FakeMover : public MoverClient {
 public:
  explicit FakeMover(const os::DirFd* node_dir) : node_dir_(node_dir) {}

  void FailNext(const std::string& method, Status status) EXCLUDES(mu_);
  // Uploads block until they are cancelled or let go.
  void HoldUploads(bool hold) EXCLUDES(mu_);
  void WaitForUpload() EXCLUDES(mu_);  // until one is held
  bool Has(const std::string& uri) const EXCLUDES(mu_);
  int pulls() const EXCLUDES(mu_);
  // The process ends and forgets its operations; calls fail until Restart.
  void Kill() EXCLUDES(mu_);
  void Restart() EXCLUDES(mu_);
  // The next call of `method` ends the process, before or after its work.
  void DieIn(const std::string& method, bool after_work) EXCLUDES(mu_);
  std::string image_config = R"({"config": {"Cmd": ["/bin/app"], "Env": ["A=1"]}})";

  StatusOr<torpor::v1::Operation> Upload(const torpor::v1::UploadRequest& request,
                                         Duration timeout) override;
  StatusOr<torpor::v1::Operation> Fetch(const torpor::v1::FetchRequest& request,
                                        Duration timeout) override;
  StatusOr<torpor::v1::Operation> PullImage(const torpor::v1::PullImageRequest& request,
                                            Duration timeout) override;
  StatusOr<torpor::v1::StatSnapshotResponse> StatSnapshot(
      const torpor::v1::StatSnapshotRequest& request, Duration timeout) override;
  StatusOr<torpor::v1::Operation> GetOperation(const torpor::v1::GetOperationRequest& request,
                                               Duration timeout) override;
  StatusOr<torpor::v1::Operation> CancelOperation(const torpor::v1::CancelOperationRequest& request,
                                                  Duration timeout) override;

 private:
  struct Stored {
    std::map<std::string, std::string> files;
    torpor::v1::SnapshotMeta meta;
  };
  Status TakeFailure(const std::string& method) EXCLUDES(mu_);
  StatusOr<torpor::v1::Operation> Run(const torpor::v1::OpHeader& header, const std::string& method,
                                      const FakeOperations::Work& work) EXCLUDES(mu_);
  Status CheckAlive() const EXCLUDES(mu_);
  Status Store(const torpor::v1::UploadRequest& request) EXCLUDES(mu_);
  Status WaitWhileHeld(const std::string& op_id) EXCLUDES(mu_);

  const os::DirFd* const node_dir_;
  mutable Mutex mu_;
  CondVar changed_;
  std::shared_ptr<FakeOperations> operations_ GUARDED_BY(mu_) = std::make_shared<FakeOperations>();
  bool alive_ GUARDED_BY(mu_) = true;
  std::map<std::string, bool> dies_in_ GUARDED_BY(mu_);  // method -> after its work
  std::map<std::string, Stored> stored_ GUARDED_BY(mu_);
  std::map<std::string, Status> failures_ GUARDED_BY(mu_);
  std::set<std::string> cancelled_ GUARDED_BY(mu_);
  bool hold_ GUARDED_BY(mu_) = false;
  int held_ GUARDED_BY(mu_) = 0;
  int pulls_ GUARDED_BY(mu_) = 0;
};

class FakeRegistry : public RegistryClient {
 public:
  void SetReachable(bool reachable) EXCLUDES(mu_);
  void ForgetLease() EXCLUDES(mu_);
  void OrderStop(const std::string& actor_uid) EXCLUDES(mu_);
  // What ListNodeActors answers: uid -> names to keep.
  void SetLive(std::map<std::string, std::set<std::string>> live) EXCLUDES(mu_);
  // Blocks until that many registrations, renewals, outcomes were seen.
  void WaitForRegistrations(int count) EXCLUDES(mu_);
  void WaitForRenewals(int count) EXCLUDES(mu_);
  void WaitForOutcomes(size_t count) EXCLUDES(mu_);
  std::vector<torpor::v1::Operation> outcomes() const EXCLUDES(mu_);
  std::vector<torpor::v1::ReportActorRequest> reports() const EXCLUDES(mu_);
  torpor::v1::RegisterNodeRequest last_registration() const EXCLUDES(mu_);
  torpor::v1::RenewLeaseRequest last_renewal() const EXCLUDES(mu_);

  StatusOr<torpor::v1::RegisterNodeResponse> RegisterNode(
      const torpor::v1::RegisterNodeRequest& request, Duration timeout) override;
  StatusOr<torpor::v1::RenewLeaseResponse> RenewLease(const torpor::v1::RenewLeaseRequest& request,
                                                      Duration timeout) override;
  Status ReportOperation(const torpor::v1::ReportOperationRequest& request,
                         Duration timeout) override;
  Status ReportActor(const torpor::v1::ReportActorRequest& request, Duration timeout) override;
  StatusOr<torpor::v1::ListNodeActorsResponse> ListNodeActors(
      const torpor::v1::ListNodeActorsRequest& request, Duration timeout) override;

 private:
  Status Check(const std::string& lease) REQUIRES(mu_);

  mutable Mutex mu_;
  CondVar changed_;
  bool reachable_ GUARDED_BY(mu_) = true;
  std::string lease_ GUARDED_BY(mu_);
  int registrations_ GUARDED_BY(mu_) = 0;
  int renewals_ GUARDED_BY(mu_) = 0;
  std::vector<std::string> stop_ GUARDED_BY(mu_);
  std::map<std::string, std::set<std::string>> live_ GUARDED_BY(mu_);
  std::vector<torpor::v1::Operation> outcomes_ GUARDED_BY(mu_);
  std::vector<torpor::v1::ReportActorRequest> reports_ GUARDED_BY(mu_);
  torpor::v1::RegisterNodeRequest last_registration_ GUARDED_BY(mu_);
  torpor::v1::RenewLeaseRequest last_renewal_ GUARDED_BY(mu_);
};

// Makes a directory instead of running umoci.
Unpacker FakeUnpacker();

}  // namespace torpor::agent
