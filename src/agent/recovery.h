#pragma once
// What a new agent does about what the one before it left: a pure decision (node.md 9) over what
// was observed. NodeAgent::Recover observes and executes.

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/operations.h"
#include "torpor/v1/common.pb.h"

namespace torpor::agent {

struct ObservedOperation {
  OpenOperation open;
  bool resident = false;  // a worker that answers lists the actor
  // What the worker says became of this operation id; unset = it never had it, or is gone.
  std::optional<torpor::v1::Operation> worker_operation;
  bool prepared = false;   // checkpoint-state holds the manifest of a complete capture
  bool committed = false;  // the generation lies in local-checkpoint
};

struct RecoveryInput {
  std::vector<ObservedOperation> operations;
  std::vector<torpor::v1::Resident> residents;  // as the workers list them
  std::set<std::string> recorded;               // actors with a running.json naming that worker
};

enum class RecoveryKind {
  kAdopt,            // a living sandbox goes on
  kStopOrphan,       // a sandbox that nothing here knows
  kFinishStart,      // it runs: DONE
  kUndoStart,        // stop, RESET, FAILED
  kUndoCapture,      // guest alive: drop checkpoint-state, FAILED
  kFinishCapture,    // the worker has captured: CHECK, COMMIT, DONE
  kCommitPrepared,   // complete with its manifest inside: COMMIT, DONE
  kReportCommitted,  // renamed already: DONE
  kCrashed,          // guest gone, capture not complete: FAILED
  kRunAgain,         // upload, stop, delete: idempotent from the start
};

struct RecoveryAction {
  RecoveryKind kind;
  std::string actor_uid;
  std::string op_id;       // empty for kAdopt and kStopOrphan
  std::string worker_uid;  // for kAdopt and kStopOrphan
  bool operator==(const RecoveryAction&) const = default;
};

// "adopt", "undo_start" and so on, for logs and metrics.
std::string_view RecoveryName(RecoveryKind kind);

// Operations first, in the order given; residents that no open operation answers for afterwards.
std::vector<RecoveryAction> PlanRecovery(const RecoveryInput& input);

}  // namespace torpor::agent
