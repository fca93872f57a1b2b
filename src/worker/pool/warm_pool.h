#pragma once
// Sandboxes that wait, frozen, for an actor that wakes.
//
// A slot is a sandbox made in advance with a network and a cgroup leaf of its own. It carries a
// name of its own, a uuid, which leaf and network keep for good: whoever looks for leaves finds
// slots and actors alike, and an actor that took a slot lives under the slot's name. The file
// `actor` in the slot's directory says whose it is. A slot is used once.
//
// Filled in the background after wakes (NoteWake), one sandbox per key of the runtime
// (PreparationKey), as pool_plan.h says. A sandbox that cannot be made, died, or cannot be thawed
// is dropped: then there is none, and the caller starts an actor as always.
//
// Thread-safe. What was taken belongs to the taker, who gives it to Remove in the end, also after
// Shutdown. The tools outlive the pool.

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "base/uuid.h"
#include "os/cgroup/cgroup_tree.h"
#include "runtime/runtime.h"
#include "worker/logs/log_pump.h"
#include "worker/network/actor_network.h"
#include "worker/pool/pool_plan.h"
#include "worker/priority_semaphore.h"

namespace torpor::worker {

// What a waiting sandbox may use. Measured: 14 MB; the rest is page cache of its programs.
inline constexpr int64_t kSlotBytes = int64_t{32} << 20;

struct PoolSlot {
  std::string name;  // a uuid
  std::string key;
  std::string directory;  // absolute
  std::string leaf;       // empty = without cgroup
  std::shared_ptr<ActorNetwork> network;
  std::map<std::string, OutputPipes> outputs;  // by container
  std::unique_ptr<runtime::PreparedSandbox> sandbox;
};

// The actor that took the slot of this name; empty = none did. For whoever finds its leaf.
std::string ActorOfSlot(const std::string& pool_directory, const std::string& name);

class WarmPool {
 public:
  struct Options {
    int slots_max = 8;  // 0 = no pool
    int per_key = 1;
    Duration recent = std::chrono::minutes(10);  // how long after its last wake a key has a slot
    Duration make_timeout = std::chrono::seconds(30);
    Duration retry_after = std::chrono::seconds(30);
    // How long after a wake the next sandbox is begun: the woken actor answers first.
    Duration make_after = std::chrono::milliseconds(20);
    std::string directory;  // absolute; belongs to the pool, which empties it at its start
  };
  struct Tools {
    runtime::Runtime* runtime = nullptr;
    NetworkProvider* network = nullptr;
    os::CgroupTree* cgroups = nullptr;           // null = without
    PrioritySemaphore* memory_images = nullptr;  // null = made at once, whatever else goes on
    IdSource* ids = nullptr;
    Clock* clock = nullptr;
  };
  static StatusOr<std::unique_ptr<WarmPool>> Start(Tools tools, Options options);
  ~WarmPool();

  // A living sandbox for the key, thawed and with these limits; null when there is none.
  std::unique_ptr<PoolSlot> Take(const std::string& key, const std::string& actor_uid,
                                 const os::CgroupLimits& limits) EXCLUDES(mu_);
  // An actor with this key was just started with these args; what the pool needs of them (spec and
  // bundle) is there as long as the actor runs. Returns at once.
  void NoteWake(const std::string& key, const runtime::StartArgs& args) EXCLUDES(mu_);
  // Ends and removes everything of a slot. Takes tens of milliseconds.
  Status Remove(PoolSlot& slot);
  // Removes every waiting slot. Idempotent.
  void Shutdown() EXCLUDES(mu_);

  int ready() const EXCLUDES(mu_);
  // Until `count` slots wait, for tests; false at the deadline.
  bool WaitReady(int count, MonotonicTime deadline) const EXCLUDES(mu_);

 private:
  struct Line {
    MonotonicTime last_wake;
    MonotonicTime not_before = MonotonicTime::min();
    int making = 0;
    // The bundle is an actor's own, and goes with it: good from a wake to the next take.
    runtime::StartArgs recipe;
    bool recipe_is_fresh = true;
    std::deque<std::unique_ptr<PoolSlot>> ready;
  };

  WarmPool(Tools tools, Options options) : tools_(tools), options_(std::move(options)) {}
  void Run() EXCLUDES(mu_);
  // One round of what the plan asks for.
  void Work() EXCLUDES(mu_);
  PoolPlan Plan() REQUIRES(mu_);
  MonotonicTime NextLook() REQUIRES(mu_);
  void MakeOne(const std::string& key) EXCLUDES(mu_);
  StatusOr<std::unique_ptr<PoolSlot>> Make(const std::string& key,
                                           const runtime::StartArgs& recipe);
  Status Fill(PoolSlot& slot, const runtime::StartArgs& recipe);
  std::unique_ptr<PoolSlot> Pop(const std::string& key) EXCLUDES(mu_);
  void Drop(std::unique_ptr<PoolSlot> slot, std::string_view why);

  const Tools tools_;
  const Options options_;
  mutable Mutex mu_;
  mutable CondVar changed_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::map<std::string, Line> lines_ GUARDED_BY(mu_);  // by key
  std::thread thread_;
};

}  // namespace torpor::worker
