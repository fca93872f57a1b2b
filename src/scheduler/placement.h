#pragma once
// Where an actor is started: a pure function of what is asked and what there is.
//
// Filters first (class, selectors, worker ready and ACTIVE, node alive, node of a local snapshot,
// capacity), then prefers the node that holds the actor's snapshot, then the least loaded worker;
// equal ones by uid, so the answer is repeatable. Bytes, milli-cores and numbers of actors.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ateapi/ateapi.pb.h"
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
  Amount capacity;
  Amount allocated;
};

struct Request {
  ateapi::SandboxClass sandbox_class = ateapi::SANDBOX_CLASS_UNSPECIFIED;
  std::vector<std::map<std::string, std::string>> selectors;  // all must match
  Amount needs;                                               // `actors` is 1
  std::string required_node;   // the only copy of the actor's state is there; empty = any
  std::string preferred_node;  // holds a copy; empty = none
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
  bool full_only = false;  // room would be made by pausing others
  bool awaited = false;    // a worker that would do is about to report
};

Obstacle CheckWorker(const WorkerView& worker, const Request& request);
Decision Place(const std::vector<WorkerView>& workers, const Request& request);

}  // namespace torpor::scheduler
