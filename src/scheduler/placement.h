#pragma once
// Where an actor is started: a pure function of what is asked and what there is.
//
// Filters first (class, selectors, node of a local snapshot, CPU of a memory snapshot, worker ready
// and ACTIVE, node alive, capacity). Then it prefers another worker than the one where the last
// attempt failed, then the node that holds the actor's snapshot, then workers with the snapshot's
// very CPU (what is captured on a newer one is bound to newer ones), then the least loaded worker;
// equal ones by uid, so the answer is repeatable. Bytes, milli-cores and numbers of actors.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ateapi/ateapi.pb.h"
#include "torpor/v1/common.pb.h"
#include "torpor/v1/ops.pb.h"

namespace torpor::scheduler {

struct Amount {
  int64_t memory_bytes = 0;
  int64_t cpu_milli = 0;
  int64_t actors = 0;
};

struct WorkerView {
  std::string uid;
  std::string name;  // for people, in reasons
  std::string node_name;
  ateapi::SandboxClass sandbox_class = ateapi::SANDBOX_CLASS_UNSPECIFIED;
  std::map<std::string, std::string> labels;
  bool ready = false;       // as the worker reports
  bool draining = false;    // or its node is
  bool disk_full = false;   // nearly: its node takes no new actors
  bool node_alive = false;  // its lease has not run out
  // It was known before this process began and has not reported since: nobody knows whether the
  // worker is still the same one.
  bool node_awaited = false;
  const torpor::v1::CpuFeatures* cpu = nullptr;  // null = not known, taken for suitable
  Amount capacity;
  Amount allocated;
};

struct Request {
  ateapi::SandboxClass sandbox_class = ateapi::SANDBOX_CLASS_UNSPECIFIED;
  std::vector<std::map<std::string, std::string>> selectors;  // all must match
  Amount needs;                                               // `actors` is 1
  std::string required_node;   // the only copy of the actor's state is there; empty = any
  std::string preferred_node;  // holds a copy; empty = none
  std::string failed_worker;   // where the last attempt failed; taken only when no other will do
  // What the memory that is brought back was captured on; null = not known, or no memory.
  const torpor::v1::CpuFeatures* cpu = nullptr;
};

enum class Obstacle {
  kNone,
  kOtherClass,
  kSelector,
  kNotReady,
  kDraining,
  kDiskPressure,
  kNodeSilent,
  kNodeAwaited,
  kOtherNode,
  kOtherCpu,
  kActorsFull,
  kMemoryFull,
  kCpuFull,
  kTooSmall,  // even when it is empty
};
// "full (memory)", "draining", ...
std::string ObstacleText(Obstacle obstacle);

struct Decision {
  int worker = -1;  // index into the view; -1 = none
  torpor::v1::Choice choice;
  std::map<Obstacle, int> obstacles;  // of the workers that were passed over
  // "3 workers full (memory), 1 draining"; for NO_CAPACITY. Says so when there is no worker at all.
  std::string summary;
  // What the workers that were passed over for their CPU do not have, sorted.
  std::vector<std::string> missing;
  bool full_only = false;  // room would be made by pausing others
  bool awaited = false;    // a worker that would do is about to report
};

// What `have` lacks of `needed`, both sorted; empty when one of them is not known. Another
// architecture is named alone.
std::vector<std::string> MissingFeatures(const torpor::v1::CpuFeatures* have,
                                         const torpor::v1::CpuFeatures* needed);
Obstacle CheckWorker(const WorkerView& worker, const Request& request);
Decision Place(const std::vector<WorkerView>& workers, const Request& request);

}  // namespace torpor::scheduler
