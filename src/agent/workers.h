#pragma once
// The worker slots of this node: who they are, how to call them, whether they answer.
//
// A slot (`gvisor-0`) has one worker process at a time. It keeps its worker uid for ever; each new
// process raises the epoch, which tells the control plane that what ran in the slot before is gone.
// Both are stored (worker-slots.json) before a worker learns them. Thread-safe.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/node_dirs.h"
#include "agent/worker_client.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "base/uuid.h"

namespace torpor::agent {

struct WorkerSlot {
  std::string worker_id;
  torpor::v1::WorkerInfo info;  // worker_uid and epoch as stored; ready = answers
  std::shared_ptr<WorkerClient> client;
};

class Workers {
 public:
  // The pointers outlive the object.
  Workers(const NodeDirs* dirs, WorkerClientFactory factory, IdSource* ids,
          std::vector<std::string> worker_ids);

  // Reads worker-slots.json; once, first.
  Status Load() EXCLUDES(mu_);
  // What RegisterWorker on a slot's socket means. `*new_process` says that the epoch was raised.
  StatusOr<torpor::v1::RegisterWorkerResponse> Register(const std::string& worker_id,
                                                        torpor::v1::WorkerInfo info,
                                                        bool* new_process) EXCLUDES(mu_);
  // Asks every slot that ever registered whether it is still the same process.
  void Refresh(Duration timeout) EXCLUDES(mu_);

  // NOT_FOUND WORKER_NOT_FOUND; with `epoch` > 0 also INTERNAL WORKER_RESTARTED when it differs.
  StatusOr<WorkerSlot> Find(const std::string& worker_uid, int64_t epoch = 0) const EXCLUDES(mu_);
  StatusOr<WorkerSlot> FindById(const std::string& worker_id) const EXCLUDES(mu_);
  // Of all configured slots.
  std::vector<std::string> Ids() const EXCLUDES(mu_);
  // Registered ones.
  std::vector<WorkerSlot> All() const EXCLUDES(mu_);
  std::vector<torpor::v1::WorkerInfo> Infos() const;
  // Whether every registered worker says it takes actors.
  bool AllReady() const;

  // Grows with every registration and every change of readiness.
  uint64_t version() const EXCLUDES(mu_);
  // Until the version is above `seen`, Interrupt, or `deadline`.
  void WaitForChange(uint64_t seen, MonotonicTime deadline) EXCLUDES(mu_);
  void Interrupt() EXCLUDES(mu_);

 private:
  Status Store(const std::map<std::string, WorkerSlot>& slots) const;

  const NodeDirs* const dirs_;
  IdSource* const ids_;
  mutable Mutex mu_;
  CondVar changed_;
  uint64_t version_ GUARDED_BY(mu_) = 1;
  std::map<std::string, WorkerSlot> slots_ GUARDED_BY(mu_);
};

}  // namespace torpor::agent
