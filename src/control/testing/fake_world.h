#pragma once
// A node agent and an object store in memory, for tests of the control plane.
//
// A sandbox is one number. Resume brings back the number of the snapshot, so a test sees at once
// which state an actor has. Calls are queued; the test decides when and in which order they run,
// whether a request or its reply is lost, and which ones fail. The world outlives control planes.
// One thread.

#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "control/control_plane.h"
#include "control/snapshot_admin.h"

namespace torpor::control {

struct Sandbox {
  int64_t generation = 0;
  int64_t value = 0;
};

class FakeWorld {
 public:
  explicit FakeWorld(Clock* clock) : clock_(clock) {}

  NodeClientFactory clients();
  SnapshotAdmin* admin();

  // ---- running what is queued ----
  // kDelay: the caller is told that nobody knows, and the request arrives later all the same.
  // kHoldReply: the request runs now, its reply is queued.
  enum class Fate { kDeliver, kLoseRequest, kLoseReply, kDelay, kHoldReply };
  // What runs next is first; "reply" is one that was held.
  const std::string& method(size_t index) const { return queue_[index].what; }
  size_t queued() const { return queue_.size(); }
  void RunAt(size_t index, Fate fate = Fate::kDeliver);
  // Runs everything that is queued; false when there was nothing.
  bool RunAll();

  // ---- faults: the next `times` calls of that method ("StartActor", "Upload", "Copy" ...) fail
  // ----
  void FailNext(const std::string& method, Status status, int times = 1);
  void HealAll() { failures_.clear(); }
  // A capture that fails kills the guest first, or leaves it alive.
  bool capture_kills = false;

  // ---- what the node and the store hold ----
  std::map<std::string, Sandbox> sandboxes;                               // by actor uid
  std::map<std::string, std::map<std::string, int64_t>> local_snapshots;  // uid -> name -> value
  std::map<std::string, int64_t> objects;                                 // uri -> value
  std::map<std::string, int64_t> highest;                                 // uid -> generation seen
  std::vector<std::string> problems;  // broken promises that the node itself noticed
  std::map<std::string, int> calls;   // method -> how often it ran
  // Called when a request runs, before it does anything; a test lets time pass here.
  std::function<void(const std::string& method)> on_run;

  // The apiserver has ended, and with it the copies that it was making.
  void EndCopies();
  // The machine is started anew: what was under way to it is lost.
  void Reboot();
  // The worker is started anew; the agent and its journal stay.
  void RestartWorker();
  // The numbers that were captured, by uid and snapshot name, for ever.
  std::map<std::string, std::map<std::string, int64_t>> captured;
  torpor::v1::RegisterNodeRequest Registration(int64_t memory_bytes = int64_t{8} << 30) const;
  std::string boot_id = "boot-1";
  std::string lease_id;  // what the agent holds; empty: it was started anew
  int64_t worker_epoch = 1;
  // Of the machine: of its worker as registered, and of what is captured. Empty: not told.
  std::vector<std::string> cpu_features;

 private:
  class Client;
  class Admin;
  struct Queued {
    std::string what;
    std::function<std::function<void()>()> run;  // runs the request; the result delivers the reply
    std::function<void()> lose;                  // answers that nobody knows
  };

  torpor::v1::Operation Execute(const std::string& method, const torpor::v1::OpHeader& op,
                                const std::string& body,
                                const std::function<Status(torpor::v1::Operation&)>& work,
                                Status& refused);
  Status TakeFailure(const std::string& method);
  template <typename Request>
  void Enqueue(const std::string& method, const Request& request, OperationDone done,
               std::function<Status(torpor::v1::Operation&)> work);
  Status Start(const torpor::v1::StartActorRequest& request, torpor::v1::Operation& operation);
  // The number in that snapshot.
  StatusOr<int64_t> Open(const std::string& uid, const torpor::v1::SnapshotSource& source) const;
  Status Capture(const torpor::v1::CaptureActorRequest& request, torpor::v1::Operation& operation);
  Status Upload(const torpor::v1::UploadSnapshotRequest& request, torpor::v1::Operation& operation);
  Status Stop(const torpor::v1::StopActorRequest& request);

  Clock* const clock_;
  std::deque<Queued> queue_;
  std::map<std::string, torpor::v1::Operation> journal_;  // by op id
  std::map<std::string, std::string> bodies_;             // by op id
  std::set<std::string> refused_;
  std::map<std::string, std::pair<Status, int>> failures_;
  std::shared_ptr<SnapshotAdmin> admin_;
};

}  // namespace torpor::control
