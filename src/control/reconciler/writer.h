#pragma once
// The single writer of the control plane; internal to control.
//
// Everything that changes a record is a task of one queue: API calls, answers of nodes and of
// object storage, timers. The writer runs all queued tasks in one transaction, commits it (group
// commit), and only then publishes the new records, answers callers and sends effects. A commit
// that fails is tried again unchanged; nothing else happens before it has succeeded.
//
// Threads: `state_`, the inbox and what `mu_` guards may be used from any thread; everything else
// belongs to the thread that runs tasks.

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/sync.h"
#include "base/time.h"
#include "control/control_plane.h"
#include "control/core/actor_step.h"
#include "control/core/idle.h"
#include "control/reconciler/state.h"
#include "control/reconciler/timers.h"
#include "control/settings.h"
#include "control/watch.h"
#include "model/actor_lifecycle.h"
#include "model/reasons.h"

namespace torpor::control {

// The queue; outlives the writer in the callbacks that were given to others.
class Inbox {
 public:
  using Task = std::function<void(Txn&)>;
  // False when the writer has stopped: the task is dropped.
  bool Post(Task task) EXCLUDES(mu_);
  std::vector<Task> TakeAll(size_t max) EXCLUDES(mu_);
  size_t size() const EXCLUDES(mu_);
  bool empty() const EXCLUDES(mu_) { return size() == 0; }
  void Close() EXCLUDES(mu_);
  // Until there is a task, `until` has come or Close was called; false after Close.
  bool WaitUntil(MonotonicTime until) EXCLUDES(mu_);

 private:
  mutable Mutex mu_;
  CondVar changed_;
  std::deque<Task> tasks_ GUARDED_BY(mu_);
  bool closed_ GUARDED_BY(mu_) = false;
};

// The answer of a call that waits; whoever drops it still gives one.
template <typename T>
class Reply {
 public:
  explicit Reply(Done<T> done) : done_(std::move(done)) {}
  ~Reply() {
    Answer(Fail(reasons::kShuttingDown, "the control plane is stopping; look what became of it"));
  }
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;

  void Answer(StatusOr<T> outcome) {
    if (Done<T> done = std::exchange(done_, nullptr)) done(std::move(outcome));
  }

 private:
  Done<T> done_;
};

// How a lifecycle verb ended well.
struct VerbOutcome {
  ateapi::Actor actor;
  bool started = false;  // an operation ran for it; false = it was so already
  std::string op_id;
  std::vector<int64_t> lost_generations;
};

struct VerbCall {
  std::string actor_key;
  torpor::v1::Verb verb = torpor::v1::VERB_UNSPECIFIED;
  torpor::v1::Fidelity fidelity = torpor::v1::FIDELITY_UNSPECIFIED;
  bool any_state = false;         // delete
  ateapi::DeleteOptions options;  // delete, rollback
  int64_t generation = 0;         // rollback
  Duration wait_for_capacity{};   // resume
  std::string traceparent;
  std::set<ateapi::ActorState> states;  // not empty: WaitActor; `verb` is unset
};

class Writer {
 public:
  Writer(ControlPlane::Parts parts, Settings settings);
  ~Writer();
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  // Loads the store and queues what is open.
  Status Load();
  void StartThread();
  bool RunReady();
  WallTime NextTimer() const;
  size_t queued() const { return inbox_->size(); }

  // ---- for the API ----
  State& state() { return state_; }
  const Settings& settings() const { return settings_; }
  Store& store() { return *parts_.store; }
  Clock& clock() { return *parts_.clock; }
  IdSource& ids() { return *parts_.ids; }

  // Runs `fn` in the writer and waits for the commit. `fn` stages nothing when it fails.
  template <typename R>
  StatusOr<R> Call(std::function<StatusOr<R>(Txn&)> fn) {
    auto result = std::make_shared<StatusOr<R>>(R());
    Status status = CallAndWait([result, fn = std::move(fn)](Txn& txn) { *result = fn(txn); });
    if (!status.ok()) return status;
    return std::move(*result);
  }
  void StartVerbCall(VerbCall call, const CallContext& context, Done<VerbOutcome> done);

  // ---- nodes.cc ----
  StatusOr<torpor::v1::RegisterNodeResponse> RegisterNode(
      Txn& txn, const torpor::v1::RegisterNodeRequest& request);
  StatusOr<torpor::v1::RenewLeaseResponse> RenewLease(const torpor::v1::RenewLeaseRequest& request)
      EXCLUDES(mu_);
  Status ReportOperation(const torpor::v1::ReportOperationRequest& request);
  Status ReportActor(Txn& txn, const torpor::v1::ReportActorRequest& request);
  StatusOr<torpor::v1::ListNodeActorsResponse> ListNodeActors(const std::string& lease_id);
  // It has registered or renewed with this process, so its worker records are what it has now.
  bool NodeReported(const std::string& node_name) const EXCLUDES(mu_);
  // Nodes that run have had no time to report yet.
  bool JustStarted() const;
  // NOT FOUND or STALE_LEASE unless some node has this lease; else its name.
  StatusOr<std::string> NodeOfLease(const std::string& lease_id) const;
  bool NodeAlive(const std::string& node_name) const EXCLUDES(mu_);
  std::optional<WallTime> LeaseExpiry(const std::string& node_name) const EXCLUDES(mu_);
  torpor::v1::DiskUsage NodeDisk(const std::string& node_name) const EXCLUDES(mu_);
  torpor::v1::Node RenderNode(const torpor::v1::NodeRecord& record) const;
  scheduler::Amount Allocated(const std::string& worker_uid) const;

  // ---- activity.cc ----
  void ReportActivity(const torpor::v1::ReportActivityRequest& request) EXCLUDES(mu_);
  core::Activity ActivityOf(const std::string& actor_uid) const EXCLUDES(mu_);
  // An explicit resume counts as activity.
  void Touch(const std::string& actor_uid) EXCLUDES(mu_);
  // What an actor asks for itself; one that does not fit any more is dropped.
  Status Wish(Txn& txn, const torpor::v1::IdleWish& wish);
  Status Wish(Txn& txn, const torpor::v1::AwakeWish& wish);
  // Bounded by the actor's policy; says until when.
  WallTime KeepAwake(Txn& txn, const std::string& key, Duration duration);

  // ---- drain.cc ----
  Status DrainNode(Txn& txn, const torpor::v1::DrainNodeRequest& request);
  // The newest state of the actor is in no other place.
  static bool IsOnlyOn(const torpor::v1::ActorRecord& record, const std::string& node_name);

  // ---- tags.cc ----
  // `make` puts a tag and says its key; answered when the tag's copy is complete.
  void StartTagCall(std::function<StatusOr<std::string>(Txn&)> make, const CallContext& context,
                    Done<ateapi::Tag> done);
  // Puts `tag`, a copy of `snapshot`, which `actor` holds, and begins the copy; its key.
  std::string PutTag(Txn& txn, ateapi::Tag tag, const torpor::v1::ActorRecord& actor,
                     const torpor::v1::BorrowedSnapshot& snapshot, bool forked);
  // Its objects go when no copy reads or writes them any more. Who waits for it is told `why`.
  void RemoveTag(Txn& txn, const torpor::v1::TagRecord& tag, const Status& why);
  // The keys of the actors that start from it and have nothing of their own.
  std::vector<std::string> Borrowers(const Txn& txn, const torpor::v1::TagRecord& tag) const;

  // ---- forks.cc ----
  void StartFork(const torpor::v1::ForkActorRequest& request, const CallContext& context,
                 Done<torpor::v1::ForkActorResponse> done);

  // ---- for WatchActors ----
  StatusOr<std::shared_ptr<ActorWatch>> Watch(const torpor::v1::WatchActorsRequest& request);

  // ---- actors.cc ----
  // The actor with what is known but not stored.
  ateapi::Actor Shown(const torpor::v1::ActorRecord& record) const;
  // Its policies changed.
  void ActorUpdated(Txn& txn, const std::string& key);

  // ---- background.cc ----
  // Takes the next step of a template's golden build.
  void ReconcileGolden(Txn& txn, const std::string& template_key);
  void PutGarbage(Txn& txn, torpor::v1::GarbageRecord garbage);
  // The template is gone: so are its golden actor and tag.
  void RemoveGolden(Txn& txn, const std::string& template_uid);
  // Workers or capacity changed: calls that wait for room are asked again.
  void CapacityChanged() { capacity_changed_ = true; }

 private:
  struct Waiter {
    uint64_t id = 0;
    VerbCall call;
    WallTime deadline;
    std::string op_id;  // of the operation that it joined; empty: it waits to be asked again
    bool for_capacity = false;
    bool checked = false;  // preconditions of the first look
    WallTime asked;        // for the report
    WallTime refused;      // since when it waits for room; 0 = it does not
    WallTime pressed;      // when another actor was paused for it; 0 = none was
    WallTime capacity_until;
    Status no_capacity;
    bool full_only = false;  // of the last refusal, as core::Change says them
    bool awaited = false;
    int places_lost = 0;
    Done<VerbOutcome> done;  // empty once it was called

    // Whoever drops a call that waits still answers it.
    ~Waiter();
    void Answer(StatusOr<VerbOutcome> outcome);
  };
  struct Lease {
    MonotonicTime expires;
    bool reported = false;  // to this process
    torpor::v1::DiskUsage disk;
  };
  // A tag whose copy is not complete.
  struct Copy {
    std::string tag_key;
    torpor::v1::SnapshotRef from;
    std::string to;
    bool under_way = false;  // object storage is at it; false: it is tried again later
    int attempts = 0;
    Status last_error;
  };
  struct TagCall {
    std::string tag_uid;
    std::shared_ptr<Reply<ateapi::Tag>> reply;
  };
  struct Fork;
  // A router by its id, and the open requests and streams of the actors that it served.
  struct Router {
    MonotonicTime heard;
    std::unordered_map<std::string, int> open;  // by actor uid; 0 = served it, nothing is open now
  };

  // ---- writer.cc ----
  Status CallAndWait(Inbox::Task task);
  void Loop();
  bool TryCommit();
  void RunTimers(Txn& txn);
  void Settle(Txn& txn);

  // ---- actors.cc ----
  // Runs one event on an actor and stages what follows; `starter` joins the operation that it
  // begins.
  Status StepActor(Txn& txn, const std::string& key, const core::Event& event,
                   Waiter* starter = nullptr);
  void Apply(Txn& txn, const std::string& key, torpor::v1::ActorRecord record, core::Change change);
  void StoreReport(Txn& txn, const torpor::v1::ActorRecord& record,
                   const torpor::v1::OperationReport& report);
  void ArmActor(Txn& txn, const std::string& key);
  void OnActorTimer(Txn& txn, const std::string& key);
  // Its lease is over; it has to register again.
  void FenceNode(Txn& txn, const std::string& node_name) EXCLUDES(mu_);
  // Nothing is placed on it until its node reports it again.
  void MarkStale(Txn& txn, const torpor::v1::Binding& worker);
  core::IdleDecision Idle(const Txn& txn, const torpor::v1::ActorRecord& record) const;

  // ---- activity.cc ----
  void FoldActivity(torpor::v1::ActorRecord& record) const EXCLUDES(mu_);
  // Its activation, or the actor itself, is gone.
  void ForgetActivity(const std::string& actor_uid, bool removed) EXCLUDES(mu_);
  void ForgetRouters() EXCLUDES(mu_);
  bool IsUsedSince(const torpor::v1::ActorRecord& record, WallTime stamp) const EXCLUDES(mu_);

  // ---- drain.cc ----
  void ReconcileDrain(Txn& txn, const std::string& node_name);
  void AddNodeEvent(Txn& txn, const std::string& node_name, const std::string& type,
                    const std::string& message);

  // ---- waiters.cc ----
  void AddWaiter(Txn& txn, std::shared_ptr<Waiter> waiter);
  void Ask(Txn& txn, const std::shared_ptr<Waiter>& waiter);
  void AskWaitActor(Txn& txn, const std::shared_ptr<Waiter>& waiter,
                    const torpor::v1::ActorRecord* record);
  void StartFor(Txn& txn, const std::shared_ptr<Waiter>& waiter,
                const torpor::v1::ActorRecord& record);
  void WaitForCapacity(Txn& txn, const std::shared_ptr<Waiter>& waiter, const Status& refusal);
  void Answer(Txn& txn, const std::shared_ptr<Waiter>& waiter, StatusOr<VerbOutcome> outcome);
  void AnswerJoined(Txn& txn, const std::string& key, const core::Ended& ended);
  void ExpireWaiter(Txn& txn, uint64_t id);
  // When a call that came at `asked` is answered at latest.
  WallTime AnswerBy(const CallContext& context, WallTime asked) const;
  // What a verb is told that the actor refuses.
  static Status Refusal(VerbAnswer answer, const std::string& key,
                        const torpor::v1::ActorRecord& record, torpor::v1::Verb verb);
  bool MakeRoom(Txn& txn);

  // ---- background.cc ----
  bool IsWanted(const std::string& owner, const std::string& op_id) const;
  void Dispatch(const std::string& owner, core::Send send);
  // An idle capture of an actor that was used while the decision was committed.
  bool IsOvertaken(const std::string& owner, const core::Send& send) const;
  void OnCallAnswer(Txn& txn, const std::string& owner, core::CallAnswer answer);
  std::shared_ptr<NodeClient> ClientOf(const std::string& address);
  void DeleteObjects(const std::string& actor_uid, const std::string& uri);
  // ABORTED while a copy reads or writes it.
  void DeleteSnapshot(const std::string& uri, std::function<void(Txn&, const Status&)> done);
  void RunGarbage(const std::string& id);
  void OnGarbageAnswer(Txn& txn, const std::string& id, const Status& status, bool retry);
  bool ActGolden(Txn& txn, const std::string& template_key,
                 const torpor::v1::TemplateRecord& record, int action);
  bool StartGoldenVerb(Txn& txn, const std::string& template_key, torpor::v1::Verb verb,
                       torpor::v1::Fidelity fidelity);
  void CreateGoldenTag(Txn& txn, const torpor::v1::TemplateRecord& record);
  void GoldenTagEnded(Txn& txn, const std::string& template_uid, const Status& status);
  void TrimEvents();

  // ---- tags.cc ----
  // After a start: takes the copies up again.
  void RecoverTags(Txn& txn);
  void BeginCopy(Txn& txn, const torpor::v1::TagRecord& tag);
  void RunCopy(const std::string& tag_uid);
  void OnCopied(Txn& txn, const std::string& tag_uid, const Status& status);
  bool IsBeingCopied(const std::string& uri) const;
  void TagEnded(Txn& txn, const std::string& tag_uid, const std::string& tag_key,
                const Status& status);
  void ExpireTagCall(Txn& txn, uint64_t id);
  // An actor does not borrow it any more.
  void ReleaseTag(Txn& txn, const torpor::v1::BorrowedSnapshot& borrowed);
  void AddTagEvent(Txn& txn, const torpor::v1::TagRecord& tag, const std::string& type,
                   torpor::v1::Event::Severity severity, const std::string& message);

  // ---- forks.cc ----
  void BeginFork(Txn& txn, const std::shared_ptr<Fork>& fork);
  // The source has changed.
  void LookAtForks(Txn& txn, const std::string& actor_key);
  void LookAtFork(Txn& txn, const std::shared_ptr<Fork>& fork);
  Status CaptureForFork(Txn& txn, Fork& fork, const torpor::v1::ActorRecord& source);
  void CopyForFork(Txn& txn, const std::shared_ptr<Fork>& fork,
                   const torpor::v1::ActorRecord& source, torpor::v1::BorrowedSnapshot snapshot);
  void ForkTagEnded(Txn& txn, const std::string& tag_uid, const std::string& tag_key,
                    const Status& status);
  // `forked`: the tag was made for this fork.
  void MakeChildren(Txn& txn, const std::shared_ptr<Fork>& fork, const std::string& tag_key,
                    bool forked);
  // A source that ran goes on.
  void WakeSource(Txn& txn, Fork& fork);
  void EndFork(Txn& txn, const std::shared_ptr<Fork>& fork, const Status& status);
  void ExpireFork(Txn& txn, uint64_t id);

  // ---- nodes.cc ----
  // Asks whether it still holds the lease that is stored: then its workers are those that are
  // known.
  void AskNode(const std::string& node_name);
  void EvictCaches(Txn& txn, const std::string& node_name);
  void PutWorkers(Txn& txn, const std::string& node_name,
                  const std::vector<torpor::v1::WorkerInfo>& workers);
  void CheckInventory(Txn& txn, const torpor::v1::RegisterNodeRequest& request, bool rebooted,
                      torpor::v1::RegisterNodeResponse& response);

  friend class TxnCluster;

  const ControlPlane::Parts parts_;
  const Settings settings_;
  const std::shared_ptr<Inbox> inbox_ = std::make_shared<Inbox>();
  State state_;

  mutable Mutex mu_;
  std::map<std::string, Lease> leases_ GUARDED_BY(mu_);               // by node name
  std::unordered_map<std::string, WallTime> active_ GUARDED_BY(mu_);  // by actor uid
  std::map<std::string, Router> routers_ GUARDED_BY(mu_);             // by id
  WatchHub watches_{&state_};

  // ---- of the thread that runs tasks ----
  std::unique_ptr<Txn> pending_;  // ran, not committed yet
  int commit_failures_ = 0;
  WallTime commit_retry_{};
  Timers timers_;
  std::set<std::string> touched_;  // actors whose waiters and golden build look again
  bool capacity_changed_ = false;
  uint64_t next_waiter_ = 1;
  std::map<uint64_t, std::shared_ptr<Waiter>> waiters_;
  std::unordered_map<std::string, std::set<uint64_t>> waiters_of_;  // by actor key
  std::set<uint64_t> capacity_waiters_;
  std::map<std::string, std::shared_ptr<NodeClient>> clients_;  // by address
  std::map<std::string, Copy> copies_;                          // by tag uid
  std::map<uint64_t, TagCall> tag_calls_;
  std::map<uint64_t, std::shared_ptr<Fork>> forks_;
  std::unordered_map<std::string, WallTime> dispatched_;  // calls of actors under way, by op id
  MonotonicTime started_{};

  std::thread thread_;
};

// The view of placement that a transaction has.
class TxnCluster : public core::ClusterView {
 public:
  TxnCluster(const Writer& writer, const Txn& txn) : writer_(writer), txn_(txn) {}
  scheduler::Decision Place(const scheduler::Request& request,
                            const torpor::v1::WorkerRecord** chosen) const override;
  bool NodeAlive(const std::string& node_name) const override;
  std::shared_ptr<const torpor::v1::CpuRecord> FindCpu(const std::string& id) const override;

 private:
  const Writer& writer_;
  const Txn& txn_;
  mutable std::shared_ptr<const torpor::v1::WorkerRecord> chosen_;
};

}  // namespace torpor::control
