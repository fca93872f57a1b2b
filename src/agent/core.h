#pragma once
// What the operations of one node share. Built once by NodeAgent; everything in it is thread-safe.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/image_store.h"
#include "agent/local_snapshots.h"
#include "agent/mover_client.h"
#include "agent/node_dirs.h"
#include "agent/node_metrics.h"
#include "agent/operations.h"
#include "agent/outcome.h"
#include "agent/reservations.h"
#include "agent/workers.h"
#include "base/sync.h"
#include "base/thread_pool.h"

namespace torpor::agent {

// Which sandboxes live in which worker, as far as the agent knows. Thread-safe.
class Residents {
 public:
  void Set(const torpor::v1::Resident& resident) EXCLUDES(mu_);
  void Erase(const std::string& actor_uid) EXCLUDES(mu_);
  void EraseWorker(const std::string& worker_uid) EXCLUDES(mu_);
  std::optional<torpor::v1::Resident> Get(const std::string& actor_uid) const EXCLUDES(mu_);
  std::vector<torpor::v1::Resident> All() const EXCLUDES(mu_);

 private:
  mutable Mutex mu_;
  std::map<std::string, torpor::v1::Resident> residents_ GUARDED_BY(mu_);
};

// Uploads under way; a newer capture or a deletion ends them. Thread-safe.
class Uploads {
 public:
  struct Upload {
    std::string op_id;
    std::string actor_uid;
    std::string snapshot_name;
    int64_t snapshot_generation = 0;
  };
  void Add(const Upload& upload) EXCLUDES(mu_);
  void Remove(const std::string& op_id) EXCLUDES(mu_);
  std::vector<Upload> Of(const std::string& actor_uid) const EXCLUDES(mu_);

 private:
  mutable Mutex mu_;
  std::map<std::string, Upload> uploads_ GUARDED_BY(mu_);
};

struct Core {
  const NodeDirs* dirs;
  LocalSnapshots* snapshots;
  Workers* workers;
  MoverClient* mover;
  ImageStore* images;
  OperationTable* operations;
  Residents* residents;
  Uploads* uploads;
  Reservations* reservations;
  ThreadPool* janitor;  // removes what was renamed away
  Clock* clock;
  IdSource* ids;
  Duration unreachable_max = kUnreachableMax;
  NodeMetrics metrics;
};

// Removes later what RESET, prune and delete of this actor renamed away.
void SweepLater(const Core& core, const std::string& actor_uid);

// Records a phase of a call whose callee could not tell its own, and passes its status on.
Status FailedPhase(Op& op, std::string_view name, double start_ms, Status status);

// StopWorkload in the worker that holds the actor, whoever sent it there. A worker process that is
// gone has taken its sandboxes with it: OK.
Status StopInWorker(const Core& core, const std::string& actor_uid, const std::string& worker_uid,
                    const torpor::v1::OpHeader& header, Duration grace, MonotonicTime deadline);

}  // namespace torpor::agent
