#pragma once
// Every operation of this node: admission by the rules of api.md 10, journaling, waiting, outcomes.
//
//   ASSIGN_OR_RETURN(Admission admission, table.Admit(std::move(accepted), lease));
//   if (admission.known) return *admission.known;         // repeated id: first outcome, or joined
//   RETURN_IF_ERROR(admission.op->Step("MKDIR"));          // journaled before the effect
//   table.Finish(admission.op, outcome);                   // journaled before the answer
//
// One operation per actor at a time; uploads run beside them. The table owns the journals and
// outlives every Op. Thread-safe; no lock is held during a journal write of another actor.

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/journal.h"
#include "agent/outcome.h"
#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "model/phases.h"
#include "os/fs/dir_fd.h"
#include "torpor/v1/common.pb.h"

namespace torpor::agent {

class OperationTable;

// One running operation. Used by the thread that runs it; Fail-safe for others to read.
class Op {
 public:
  const std::string& id() const { return accepted_.op_id(); }
  const std::string& actor_uid() const { return actor_uid_; }
  int64_t generation() const { return accepted_.generation(); }
  const torpor::v1::JournalRecord& accepted() const { return accepted_; }
  MonotonicTime deadline() const { return deadline_; }
  Duration TimeLeft() const;
  PhaseRecorder* phases() { return &phases_; }

  // Journals that the effect of `step` begins. While the operation may still be given up
  // (`may_stop`) it fails with SUPERSEDED when a higher generation came, and with
  // DEADLINE_EXCEEDED. After an error the effect must not happen.
  Status Step(const std::string& step, bool may_stop);

 private:
  friend class OperationTable;
  Op(OperationTable* table, std::string actor_uid, torpor::v1::JournalRecord accepted,
     Duration timeout, Clock* clock);

  OperationTable* const table_;
  const std::string actor_uid_;
  const torpor::v1::JournalRecord accepted_;
  Clock* const clock_;
  const MonotonicTime deadline_;
  PhaseRecorder phases_;
};

struct Admission {
  std::optional<torpor::v1::Operation> known;
  std::shared_ptr<Op> op;  // set unless `known` is
};

// An operation that an earlier agent left without outcome.
struct OpenOperation {
  torpor::v1::JournalRecord accepted;
  std::string actor_uid;
  std::string last_step;  // empty = accepted only
};

class OperationTable {
 public:
  // The pointers outlive the table; `observer` may be null.
  OperationTable(const os::DirFd* journal_dir, std::string boot_id, Clock* clock,
                 JournalObserver* observer);

  // Reads every journal, once, before anything else. Journals of an earlier boot are dropped.
  Status Load() EXCLUDES(mu_);
  std::vector<OpenOperation> Open() const EXCLUDES(mu_);
  // Takes over an operation of Open(); it gets `timeout` from now.
  std::shared_ptr<Op> Adopt(const std::string& op_id, Duration timeout) EXCLUDES(mu_);

  // `accepted` has kind ACCEPTED, op id, method, generation, request hash and request. In this
  // order: known id (joined until `timeout`), another body INVALID_ARGUMENT, refused id ABORTED
  // SUPERSEDED, STALE_LEASE, STALE_GENERATION, OPERATION_IN_PROGRESS. Then it is journaled.
  struct Request {
    std::string actor_uid;
    torpor::v1::JournalRecord accepted;
    Duration timeout{};
    bool beside_others = false;
    std::string lease_id;
  };
  StatusOr<Admission> Admit(Request request) EXCLUDES(mu_);
  // Sets end time and phases; returns what the caller answers.
  torpor::v1::Operation Finish(const std::shared_ptr<Op>& op, torpor::v1::Operation outcome)
      EXCLUDES(mu_);

  StatusOr<torpor::v1::Operation> Get(const torpor::v1::GetOperationRequest& request) EXCLUDES(mu_);

  // Ended and not acknowledged, oldest first.
  std::vector<torpor::v1::Operation> Unacknowledged() const EXCLUDES(mu_);
  // Running ones and unacknowledged ones.
  std::vector<torpor::v1::Operation> Current() const EXCLUDES(mu_);
  // Blocks until something is unacknowledged, Wake or the deadline.
  void WaitForOutcome(MonotonicTime deadline) EXCLUDES(mu_);
  void Acknowledge(const std::string& op_id) EXCLUDES(mu_);
  void Wake() EXCLUDES(mu_);

  // Whether something of the actor is on this node. Called with the table's lock held.
  using Present = std::function<bool(const std::string& actor_uid)>;
  // Of an actor that is not on this node any more and whose outcomes are all acknowledged, nothing
  // has to stay, above all not for the many that are created and deleted every day:
  // - Nobody asks for these ids again. An acknowledgement comes after the commit that took the
  //   outcome into the record, or after the record was deleted; what the control plane sends and
  //   asks afterwards, also after its own restart, comes from what it has committed.
  // - What it repeats without a record (the garbage of a deleted actor: stop, delete snapshots)
  //   finds nothing, and that is the answer it got the first time.
  // - A copy of a request that still travels, and that nobody waits for, is refused: a delete is
  //   of a higher generation than all before it. That number is kept in memory, without a file,
  //   for kLateRequestMax or until the lease changes: what was sent before has the old lease. A new
  //   agent always registers for a new one.
  // Does nothing while the actor is here or something of it is open, unacknowledged or held.
  void Forget(const std::string& actor_uid, const Present& present) EXCLUDES(mu_);
  // Runs every few minutes: forgets the outcomes that the journals have dropped, and what Forget
  // may forget meanwhile.
  void DropExpired(const Present& present) EXCLUDES(mu_);

  // Until no operation runs; false when `deadline` passed.
  bool WaitUntilIdle(MonotonicTime deadline) EXCLUDES(mu_);

  // Since when no operation runs; unset while one does.
  std::optional<MonotonicTime> quiet_since() const EXCLUDES(mu_);
  // Keeps operations of the actor from being admitted (OPERATION_IN_PROGRESS) until Release. False
  // when one runs.
  bool TryHold(const std::string& actor_uid) EXCLUDES(mu_);
  void Release(const std::string& actor_uid) EXCLUDES(mu_);

  void SetLease(const std::string& lease_id) EXCLUDES(mu_);
  std::string lease() const EXCLUDES(mu_);
  bool IsBusy(const std::string& actor_uid) const EXCLUDES(mu_);

 private:
  friend class Op;
  struct Known {
    std::string actor_uid;
    std::string request_hash;
    torpor::v1::Operation operation;
    torpor::v1::JournalRecord accepted;
    std::string last_step;
    bool ended = false;
    bool refused = false;
    bool acknowledged = false;
    bool beside_others = false;
    bool settled() const { return ended && acknowledged; }
  };
  struct Actor {
    std::shared_ptr<Journal> journal;
    int64_t highest_generation = 0;
    std::string running_op;        // the one that excludes others
    std::set<std::string> op_ids;  // in known_
    MonotonicTime forgotten_at{};  // without journal: only the generation is left
    bool is_fence() const { return journal == nullptr && running_op.empty() && op_ids.empty(); }
  };

  StatusOr<std::shared_ptr<Journal>> JournalOf(const std::string& actor_uid) EXCLUDES(mu_);
  void ForgetLocked(const std::string& actor_uid, const Present& present) REQUIRES(mu_);
  void LoadRecord(const std::string& actor_uid, const torpor::v1::JournalRecord& record)
      REQUIRES(mu_);
  // The answer to a known id, or nullopt when it is new.
  StatusOr<std::optional<torpor::v1::Operation>> AnswerKnown(const Request& request) REQUIRES(mu_);
  Status CheckFences(const Request& request) REQUIRES(mu_);
  // Waits until the operation ends or the deadline; returns it as it is then.
  torpor::v1::Operation Join(const std::string& op_id, MonotonicTime deadline) REQUIRES(mu_);
  Status AppendStep(const Op& op, const std::string& step, bool may_stop) EXCLUDES(mu_);

  const os::DirFd* const journal_dir_;
  const std::string boot_id_;
  Clock* const clock_;
  JournalObserver* const observer_;

  Mutex opening_mu_;  // taken before mu_: a journal is opened, and so rewritten, once

  mutable Mutex mu_;
  CondVar changed_;
  std::map<std::string, Known> known_ GUARDED_BY(mu_);
  std::set<std::string> running_ GUARDED_BY(mu_);         // ids in known_ without outcome
  std::set<std::string> unacknowledged_ GUARDED_BY(mu_);  // ids in known_ with one to report
  std::map<std::string, Actor> actors_ GUARDED_BY(mu_);
  std::string lease_id_ GUARDED_BY(mu_);
  MonotonicTime last_end_ GUARDED_BY(mu_);
  bool woken_ GUARDED_BY(mu_) = false;
};

// Journal that holds ids refused for no known actor.
inline constexpr char kNodeJournal[] = "node";
// No request travels longer: its sender gives it up at its deadline, of half an hour at most.
inline constexpr Duration kLateRequestMax = std::chrono::hours(1);

}  // namespace torpor::agent
