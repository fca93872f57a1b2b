#pragma once
// What of a node's directories nobody needs any more: pure verdicts over what was observed
// (node.md 7). garbage_collector.h observes and removes.

#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"

namespace torpor::agent {

struct GarbageRules {
  Duration min_age = std::chrono::minutes(10);
  int passes = 3;  // that must come to the same verdict, one after the other
};

// What a pass saw.
struct GarbageFacts {
  struct Snapshot {
    std::string name;
    Duration age{};
    bool pinned = false;  // somebody reads it
  };
  struct Tree {
    std::string uid;
    Duration age{};           // since its last change; negative = the clock was set back
    bool resident = false;    // a worker lists it, or the agent believes so
    bool in_journal = false;  // an operation is open, or its outcome is not acknowledged
    bool mounted = false;     // something is mounted at or below it
    std::vector<Snapshot> snapshots;
  };
  std::vector<Tree> trees;
  // What the control plane wants kept: actor uid -> names of local generations.
  std::map<std::string, std::set<std::string>> live;
  // Sockets of workers that are not configured: name -> age, if nobody listens on it.
  std::map<std::string, Duration> silent_sockets;
};

struct Garbage {
  std::set<std::string> trees;                              // actor uids
  std::set<std::pair<std::string, std::string>> snapshots;  // actor uid, name
  std::set<std::string> sockets;                            // names in run/
  bool operator==(const Garbage&) const = default;
};

// The verdict of one pass. An empty `live` condemns nothing: a control plane that knows no actor at
// all is more likely to be wrong than right, and a deleted actor's tree goes with its deletion.
Garbage JudgeGarbage(const GarbageFacts& facts, const GarbageRules& rules);

// Counts verdicts over passes. One thread.
class Verdicts {
 public:
  explicit Verdicts(int passes) : passes_(passes) {}
  // What `seen` and the passes before it agree on; whatever is not in `seen` begins anew.
  Garbage Confirm(const Garbage& seen);
  // A pass that could not judge.
  void Reset() { count_ = {}; }

 private:
  const int passes_;
  struct {
    std::map<std::string, int> trees;
    std::map<std::pair<std::string, std::string>, int> snapshots;
    std::map<std::string, int> sockets;
  } count_;
};

// Whether the node must not get new actors: less than a tenth of the disk is free, or less than
// twice the largest capture so far.
bool IsDiskPressure(int64_t free_bytes, int64_t total_bytes, int64_t largest_capture_bytes);

}  // namespace torpor::agent
