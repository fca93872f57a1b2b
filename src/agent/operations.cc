#include "agent/operations.h"

#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "base/log.h"
#include "base/uuid.h"
#include "model/reasons.h"

namespace torpor::agent {

using torpor::v1::JournalRecord;
using torpor::v1::Operation;

Op::Op(OperationTable* table, std::string actor_uid, JournalRecord accepted, Duration timeout,
       Clock* clock)
    : table_(table),
      actor_uid_(std::move(actor_uid)),
      accepted_(std::move(accepted)),
      clock_(clock),
      deadline_(clock->Now() + timeout),
      phases_("node", clock) {}

Duration Op::TimeLeft() const { return std::max(Duration(0), deadline_ - clock_->Now()); }

Status Op::Step(const std::string& step, bool may_stop) {
  return table_->AppendStep(*this, step, may_stop);
}

OperationTable::OperationTable(const os::DirFd* journal_dir, std::string boot_id, Clock* clock,
                               JournalObserver* observer)
    : journal_dir_(journal_dir),
      boot_id_(std::move(boot_id)),
      clock_(clock),
      observer_(observer),
      last_end_(clock->Now()) {}

Status OperationTable::Load() {
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> entries, journal_dir_->List());
  for (const os::DirEntry& entry : entries) {
    if (entry.name.size() < 3 || entry.name.substr(entry.name.size() - 2) != ".j") continue;
    std::string uid = entry.name.substr(0, entry.name.size() - 2);
    if (uid != kNodeJournal && !IsUuid(uid)) continue;
    ASSIGN_OR_RETURN(std::shared_ptr<Journal> journal, JournalOf(uid));
    MutexLock lock(&mu_);
    for (const JournalRecord& record : journal->records()) LoadRecord(uid, record);
  }
  return OkStatus();
}

void OperationTable::LoadRecord(const std::string& actor_uid, const JournalRecord& record) {
  Actor& actor = actors_[actor_uid];
  actor.highest_generation = std::max(actor.highest_generation, record.generation());
  if (record.op_id().empty()) return;
  auto [entry, added] = known_.try_emplace(record.op_id());
  if (added) actor.op_ids.insert(record.op_id());
  Known& known = entry->second;
  known.actor_uid = actor_uid;
  switch (record.kind()) {
    case JournalRecord::KIND_ACCEPTED:
      known.accepted = record;
      known.request_hash = record.request_hash();
      known.beside_others = record.has_upload();
      known.operation.set_op_id(record.op_id());
      known.operation.set_method(record.method());
      known.operation.set_actor_uid(actor_uid);
      known.operation.set_generation(record.generation());
      known.operation.set_state(Operation::STATE_RUNNING);
      *known.operation.mutable_start_time() = record.time();
      if (!known.beside_others) actor.running_op = record.op_id();
      running_.insert(record.op_id());
      break;
    case JournalRecord::KIND_STEP:
      known.last_step = record.step();
      known.operation.set_step(record.step());
      break;
    case JournalRecord::KIND_OUTCOME:
      known.operation = record.outcome();
      known.ended = true;
      running_.erase(record.op_id());
      unacknowledged_.insert(record.op_id());
      if (actor.running_op == record.op_id()) actor.running_op.clear();
      break;
    case JournalRecord::KIND_ACKNOWLEDGED:
      known.acknowledged = true;
      unacknowledged_.erase(record.op_id());
      break;
    case JournalRecord::KIND_REFUSED:
      known.refused = known.ended = known.acknowledged = true;
      break;
    default:
      break;
  }
}

std::vector<OpenOperation> OperationTable::Open() const {
  MutexLock lock(&mu_);
  std::vector<OpenOperation> out;
  for (const std::string& id : running_) {
    const Known& known = known_.at(id);
    out.push_back({known.accepted, known.actor_uid, known.last_step});
  }
  return out;
}

std::shared_ptr<Op> OperationTable::Adopt(const std::string& op_id, Duration timeout) {
  MutexLock lock(&mu_);
  auto it = known_.find(op_id);
  if (it == known_.end() || it->second.ended) return nullptr;
  return std::shared_ptr<Op>(
      new Op(this, it->second.actor_uid, it->second.accepted, timeout, clock_));
}

StatusOr<std::shared_ptr<Journal>> OperationTable::JournalOf(const std::string& actor_uid) {
  auto find = [&]() -> std::shared_ptr<Journal> {
    MutexLock lock(&mu_);
    auto it = actors_.find(actor_uid);
    return it == actors_.end() ? nullptr : it->second.journal;
  };
  if (auto journal = find()) return journal;
  MutexLock opening(&opening_mu_);
  if (auto journal = find()) return journal;
  ASSIGN_OR_RETURN(std::shared_ptr<Journal> journal,
                   Journal::Open(*journal_dir_, actor_uid, boot_id_, clock_, observer_));
  MutexLock lock(&mu_);
  return actors_[actor_uid].journal = std::move(journal);
}

StatusOr<std::optional<Operation>> OperationTable::AnswerKnown(const Request& request) {
  auto it = known_.find(request.accepted.op_id());
  if (it == known_.end()) return std::optional<Operation>();
  const Known& known = it->second;
  if (known.refused) {
    return Fail(reasons::kSuperseded, "this operation id was given up before it arrived",
                {{"op_id", request.accepted.op_id()}});
  }
  if (known.request_hash != request.accepted.request_hash() ||
      known.operation.method() != request.accepted.method()) {
    return Fail(reasons::kRequestIdReused, "this operation id was used for another request",
                {{"op_id", request.accepted.op_id()}});
  }
  return std::optional<Operation>(Join(request.accepted.op_id(), clock_->Now() + request.timeout));
}

Status OperationTable::CheckFences(const Request& request) {
  if (lease_id_.empty() || request.lease_id != lease_id_) {
    return Fail(reasons::kStaleLease, "the node has another lease", {{"lease", lease_id_}});
  }
  Actor& actor = actors_[request.actor_uid];
  if (request.accepted.generation() < actor.highest_generation) {
    return Fail(reasons::kStaleGeneration, "the node has seen a higher generation of this actor",
                {{"highest", fmt::to_string(actor.highest_generation)}});
  }
  // Also when refused below: the older work is to stop at its next safe step.
  actor.highest_generation = request.accepted.generation();
  if (!request.beside_others && !actor.running_op.empty()) {
    return Fail(reasons::kOperationInProgress, "another operation of this actor runs",
                {{"op_id", actor.running_op}});
  }
  return OkStatus();
}

StatusOr<Admission> OperationTable::Admit(Request request) {
  const std::string op_id = request.accepted.op_id();
  // The journal is opened first, so that a new actor's first file is not made under the lock.
  {
    MutexLock lock(&mu_);
    ASSIGN_OR_RETURN(auto known, AnswerKnown(request));
    if (known) return Admission{std::move(known), nullptr};
    RETURN_IF_ERROR(CheckFences(request));
  }
  *request.accepted.mutable_time() = ToProto(clock_->WallNow());
  std::shared_ptr<Journal> journal;
  for (bool entered = false; !entered;) {
    ASSIGN_OR_RETURN(journal, JournalOf(request.actor_uid));
    MutexLock lock(&mu_);
    // Forget may have removed it just now; from LoadRecord on it will not.
    if (actors_[request.actor_uid].journal != journal) continue;
    ASSIGN_OR_RETURN(auto known, AnswerKnown(request));
    if (known) return Admission{std::move(known), nullptr};
    RETURN_IF_ERROR(CheckFences(request));
    LoadRecord(request.actor_uid, request.accepted);
    entered = true;
  }
  Status journaled = journal->Append(request.accepted);
  if (!journaled.ok()) {
    MutexLock lock(&mu_);
    known_.erase(op_id);
    running_.erase(op_id);
    Actor& actor = actors_[request.actor_uid];
    actor.op_ids.erase(op_id);
    if (actor.running_op == op_id) actor.running_op.clear();
    changed_.SignalAll();
    return journaled;
  }
  return Admission{std::nullopt,
                   std::shared_ptr<Op>(new Op(this, request.actor_uid, std::move(request.accepted),
                                              request.timeout, clock_))};
}

Status OperationTable::AppendStep(const Op& op, const std::string& step, bool may_stop) {
  ASSIGN_OR_RETURN(std::shared_ptr<Journal> journal, JournalOf(op.actor_uid()));
  {
    MutexLock lock(&mu_);
    Known& known = known_[op.id()];
    if (may_stop && !known.beside_others &&
        actors_[op.actor_uid()].highest_generation > op.generation()) {
      return Fail(reasons::kSuperseded, "a newer generation of the actor was asked for");
    }
    known.last_step = step;
    known.operation.set_step(step);
  }
  if (may_stop && op.TimeLeft() <= Duration(0)) {
    return Fail(reasons::kDeadlineExceeded, fmt::format("out of time before step {}", step));
  }
  JournalRecord record;
  record.set_kind(JournalRecord::KIND_STEP);
  record.set_op_id(op.id());
  record.set_step(step);
  record.set_generation(op.generation());
  *record.mutable_time() = ToProto(clock_->WallNow());
  return journal->Append(record);
}

Operation OperationTable::Finish(const std::shared_ptr<Op>& op, Operation outcome) {
  outcome.set_op_id(op->id());
  outcome.set_method(op->accepted().method());
  outcome.set_actor_uid(op->actor_uid());
  outcome.set_generation(op->generation());
  *outcome.mutable_start_time() = op->accepted().time();
  *outcome.mutable_end_time() = ToProto(clock_->WallNow());
  for (torpor::v1::Phase& phase : op->phases()->phases()) {
    *outcome.add_phases() = std::move(phase);
  }
  JournalRecord record;
  record.set_kind(JournalRecord::KIND_OUTCOME);
  record.set_op_id(op->id());
  record.set_generation(op->generation());
  *record.mutable_outcome() = outcome;
  *record.mutable_time() = outcome.end_time();
  auto journal = JournalOf(op->actor_uid());
  Status journaled = journal.ok() ? (*journal)->AppendOrKeep(record) : journal.status();
  if (!journaled.ok()) {
    // The answer is still right; after a crash recovery finds the same from the directories.
    LogError("an outcome could not be journaled",
             {{"op", op->id()}, {"error", std::string(journaled.message())}});
  }
  MutexLock lock(&mu_);
  Known& known = known_[op->id()];
  known.operation = outcome;
  known.ended = true;
  last_end_ = clock_->Now();
  running_.erase(op->id());
  unacknowledged_.insert(op->id());
  Actor& actor = actors_[op->actor_uid()];
  if (actor.running_op == op->id()) actor.running_op.clear();
  changed_.SignalAll();
  return outcome;
}

Operation OperationTable::Join(const std::string& op_id, MonotonicTime deadline) {
  for (;;) {
    auto it = known_.find(op_id);
    if (it == known_.end()) {
      Operation gone;
      gone.set_op_id(op_id);
      gone.set_state(Operation::STATE_FAILED);
      *gone.mutable_error() =
          ToRpcStatus(Fail(reasons::kDiskFull, "the operation could not be journaled"));
      return gone;
    }
    if (it->second.ended || clock_->Now() >= deadline) return it->second.operation;
    if (!changed_.WaitUntil(&mu_, deadline)) return known_[op_id].operation;
  }
}

StatusOr<Operation> OperationTable::Get(const torpor::v1::GetOperationRequest& request) {
  {
    MutexLock lock(&mu_);
    auto it = known_.find(request.op_id());
    if (it != known_.end() && !it->second.refused) {
      Duration wait = std::min(FromProto(request.wait()), Duration(std::chrono::seconds(60)));
      return Join(request.op_id(), clock_->Now() + wait);
    }
  }
  Status unknown = Fail(reasons::kOperationNotFound, "this operation never started here",
                        {{"op_id", request.op_id()}});
  if (!request.refuse_if_unknown()) return unknown;
  ASSIGN_OR_RETURN(std::shared_ptr<Journal> journal, JournalOf(kNodeJournal));
  JournalRecord record;
  record.set_kind(JournalRecord::KIND_REFUSED);
  record.set_op_id(request.op_id());
  *record.mutable_time() = ToProto(clock_->WallNow());
  {
    MutexLock lock(&mu_);
    auto it = known_.find(request.op_id());
    if (it != known_.end() && !it->second.refused) return it->second.operation;
    LoadRecord(kNodeJournal, record);
  }
  RETURN_IF_ERROR(journal->Append(record));
  return unknown;
}

std::vector<Operation> OperationTable::Unacknowledged() const {
  MutexLock lock(&mu_);
  std::vector<Operation> out;
  for (const std::string& id : unacknowledged_) out.push_back(known_.at(id).operation);
  std::sort(out.begin(), out.end(), [](const Operation& a, const Operation& b) {
    return FromProto(a.end_time()) < FromProto(b.end_time());
  });
  return out;
}

std::vector<Operation> OperationTable::Current() const {
  MutexLock lock(&mu_);
  std::vector<Operation> out;
  for (const std::string& id : running_) out.push_back(known_.at(id).operation);
  for (const std::string& id : unacknowledged_) out.push_back(known_.at(id).operation);
  return out;
}

void OperationTable::WaitForOutcome(MonotonicTime deadline) {
  MutexLock lock(&mu_);
  for (;;) {
    if (!unacknowledged_.empty()) return;
    if (woken_) {
      woken_ = false;
      return;
    }
    if (!changed_.WaitUntil(&mu_, deadline)) return;
  }
}

void OperationTable::Wake() {
  MutexLock lock(&mu_);
  woken_ = true;
  changed_.SignalAll();
}

void OperationTable::Acknowledge(const std::string& op_id) {
  std::string uid;
  {
    MutexLock lock(&mu_);
    auto it = known_.find(op_id);
    if (it == known_.end() || it->second.acknowledged) return;
    it->second.acknowledged = true;
    unacknowledged_.erase(op_id);
    uid = it->second.actor_uid;
  }
  JournalRecord record;
  record.set_kind(JournalRecord::KIND_ACKNOWLEDGED);
  record.set_op_id(op_id);
  *record.mutable_time() = ToProto(clock_->WallNow());
  auto journal = JournalOf(uid);
  // Not journaled means that it is reported once more after a restart.
  Status status = journal.ok() ? (*journal)->Append(record) : journal.status();
  if (!status.ok()) LogWarning("journal", {{"error", std::string(status.message())}});
}

void OperationTable::Forget(const std::string& actor_uid, const Present& present) {
  MutexLock lock(&mu_);
  ForgetLocked(actor_uid, present);
}

void OperationTable::ForgetLocked(const std::string& actor_uid, const Present& present) {
  auto it = actors_.find(actor_uid);
  if (it == actors_.end() || it->second.journal == nullptr) return;
  Actor& actor = it->second;
  if (!actor.running_op.empty()) return;
  for (const std::string& id : actor.op_ids) {
    if (!known_.at(id).settled()) return;
  }
  if (present(actor_uid) || !actor.journal->Remove().ok()) return;
  for (const std::string& id : actor.op_ids) known_.erase(id);
  actor.op_ids.clear();
  actor.journal = nullptr;
  actor.forgotten_at = clock_->Now();
}

void OperationTable::DropExpired(const Present& present) {
  std::map<std::string, std::shared_ptr<Journal>> journals;
  {
    MutexLock lock(&mu_);
    for (const auto& [uid, actor] : actors_) {
      if (actor.journal != nullptr && actor.running_op.empty()) journals[uid] = actor.journal;
    }
  }
  for (const auto& [uid, journal] : journals) {
    auto empty = journal->Compact();
    if (!empty.ok()) continue;
    std::set<std::string> kept;
    for (const JournalRecord& record : journal->records()) kept.insert(record.op_id());
    MutexLock lock(&mu_);
    auto it = actors_.find(uid);
    if (it == actors_.end() || it->second.journal != journal) continue;
    // Only what was acknowledged before the journal was read can be missing there.
    std::set<std::string>& ids = it->second.op_ids;
    for (auto id = ids.begin(); id != ids.end();) {
      const bool gone = known_.at(*id).settled() && kept.count(*id) == 0;
      if (gone) known_.erase(*id);
      id = gone ? ids.erase(id) : std::next(id);
    }
    // Refused ids belong to no actor; they stay their time.
    if (uid != kNodeJournal || *empty) ForgetLocked(uid, present);
  }
  MutexLock lock(&mu_);
  std::erase_if(actors_, [&](const auto& item) {
    return item.second.is_fence() && clock_->Now() - item.second.forgotten_at >= kLateRequestMax;
  });
}

bool OperationTable::WaitUntilIdle(MonotonicTime deadline) {
  MutexLock lock(&mu_);
  for (;;) {
    if (running_.empty()) return true;
    if (clock_->Now() >= deadline || !changed_.WaitUntil(&mu_, deadline)) return false;
  }
}

std::optional<MonotonicTime> OperationTable::quiet_since() const {
  MutexLock lock(&mu_);
  if (!running_.empty()) return std::nullopt;
  return last_end_;
}

namespace {
// Stands for an operation where there is none; no operation has this id.
constexpr char kHeld[] = "held";
}  // namespace

bool OperationTable::TryHold(const std::string& actor_uid) {
  MutexLock lock(&mu_);
  for (const std::string& id : running_) {
    if (known_.at(id).actor_uid == actor_uid) return false;
  }
  Actor& actor = actors_[actor_uid];
  if (!actor.running_op.empty()) return false;
  actor.running_op = kHeld;
  return true;
}

void OperationTable::Release(const std::string& actor_uid) {
  MutexLock lock(&mu_);
  Actor& actor = actors_[actor_uid];
  if (actor.running_op == kHeld) actor.running_op.clear();
}

void OperationTable::SetLease(const std::string& lease_id) {
  MutexLock lock(&mu_);
  if (lease_id_ == lease_id) return;
  lease_id_ = lease_id;
  std::erase_if(actors_, [](const auto& item) { return item.second.is_fence(); });
}

std::string OperationTable::lease() const {
  MutexLock lock(&mu_);
  return lease_id_;
}

bool OperationTable::IsBusy(const std::string& actor_uid) const {
  MutexLock lock(&mu_);
  auto it = actors_.find(actor_uid);
  return it != actors_.end() && !it->second.running_op.empty();
}

}  // namespace torpor::agent
