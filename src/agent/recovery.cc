#include "agent/recovery.h"

#include "agent/steps.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;

bool Succeeded(const ObservedOperation& observed) {
  return observed.worker_operation &&
         observed.worker_operation->state() == Operation::STATE_SUCCEEDED;
}

RecoveryKind PlanStart(const ObservedOperation& observed) {
  bool started = observed.open.last_step == "START" && Succeeded(observed) && observed.resident;
  return started ? RecoveryKind::kFinishStart : RecoveryKind::kUndoStart;
}

bool AfterIntent(const std::string& step) {
  return step == "INTENT" || step == "CHECK" || step == "COMMIT";
}

RecoveryKind PlanCapture(const ObservedOperation& observed) {
  if (observed.committed) return RecoveryKind::kReportCommitted;
  if (!AfterIntent(observed.open.last_step)) return RecoveryKind::kUndoCapture;
  if (observed.prepared) return RecoveryKind::kCommitPrepared;
  if (Succeeded(observed)) return RecoveryKind::kFinishCapture;
  if (!observed.resident) return RecoveryKind::kCrashed;
  if (!observed.worker_operation) return RecoveryKind::kUndoCapture;  // it never got the request
  // It failed there: the worker lists the actor, and its error says whether it proved it alive.
  ErrorMetadata metadata = MetadataOf(OutcomeStatus(*observed.worker_operation));
  auto it = metadata.find(kGuestAlive);
  bool alive = it != metadata.end() && it->second == "true";
  return alive ? RecoveryKind::kUndoCapture : RecoveryKind::kCrashed;
}

}  // namespace

std::string_view RecoveryName(RecoveryKind kind) {
  switch (kind) {
    case RecoveryKind::kAdopt:
      return "adopt";
    case RecoveryKind::kStopOrphan:
      return "stop_orphan";
    case RecoveryKind::kFinishStart:
      return "finish_start";
    case RecoveryKind::kUndoStart:
      return "undo_start";
    case RecoveryKind::kUndoCapture:
      return "undo_capture";
    case RecoveryKind::kFinishCapture:
      return "finish_capture";
    case RecoveryKind::kCommitPrepared:
      return "commit_prepared";
    case RecoveryKind::kReportCommitted:
      return "report_committed";
    case RecoveryKind::kCrashed:
      return "crashed";
    case RecoveryKind::kRunAgain:
      return "run_again";
  }
  return "unknown";
}

std::vector<RecoveryAction> PlanRecovery(const RecoveryInput& input) {
  std::vector<RecoveryAction> out;
  std::set<std::string> answered;
  for (const ObservedOperation& observed : input.operations) {
    const auto& accepted = observed.open.accepted;
    RecoveryKind kind = RecoveryKind::kRunAgain;
    if (accepted.has_start()) kind = PlanStart(observed);
    if (accepted.has_capture()) kind = PlanCapture(observed);
    // An upload, a deletion of files and a capture that leaves or left the guest running say
    // nothing about who owns the sandbox.
    if (accepted.has_start() || accepted.has_stop() || kind == RecoveryKind::kCrashed) {
      answered.insert(observed.open.actor_uid);
    }
    out.push_back({kind, observed.open.actor_uid, accepted.op_id(), ""});
  }
  for (const torpor::v1::Resident& resident : input.residents) {
    if (answered.count(resident.actor_uid()) > 0) continue;
    bool known = input.recorded.count(resident.actor_uid()) > 0;
    out.push_back({known ? RecoveryKind::kAdopt : RecoveryKind::kStopOrphan, resident.actor_uid(),
                   "", resident.worker_uid()});
  }
  return out;
}

}  // namespace torpor::agent
