#pragma once
// Calls to node agents: how they are made, what an answer means, when a failed step is tried again.
// Pure.
//
// A NodeCall is stored with its op id before it is sent. Lost replies leave its outcome open; then
// GetOperation is asked until the node says what became of it.

#include <string>

#include "base/status.h"
#include "base/time.h"
#include "torpor/v1/record.pb.h"

namespace torpor::control::core {

// A failed operation that may work when it is repeated, or not.
enum class Verdict {
  kRetry,   // a later attempt can succeed without anybody doing anything
  kGiveUp,  // somebody must change something first
  kCrash,   // the sandbox is gone or its snapshot is damaged
};
// Decides by code and reason alone.
Verdict Judge(Code code, std::string_view reason);
inline Verdict Judge(const Status& status) { return Judge(status.code(), ReasonOf(status)); }

// Before attempt `attempts + 1`: 250 ms doubled per attempt, at most `cap`.
Duration Backoff(int attempts, Duration cap);

enum class CallState {
  kOpen,       // the outcome is not known yet; `call` says when to ask
  kSucceeded,  // `operation` holds the result
  kFailed,     // `error` says why; nothing of it is under way any more
};
struct CallOutcome {
  CallState state = CallState::kOpen;
  torpor::v1::Operation operation;
  Status error;
  bool accepted = false;  // the node ran it; false: it refused before doing anything
};

// What an answer to `call` means. `query`: the answer is one of GetOperation. `refused`: that query
// also forbade a later start. Updates the query times of `call` while it stays open.
CallOutcome Resolve(torpor::v1::NodeCall& call, const StatusOr<torpor::v1::Operation>& answer,
                    bool query, bool refused, WallTime now);

// The header of the request in `call`.
torpor::v1::OpHeader* Header(torpor::v1::NodeCall& call);
// Gives `call` a new op id for another attempt of the same request.
void Renew(torpor::v1::NodeCall& call, std::string op_id, WallTime now);
// "StartActor"
std::string MethodName(const torpor::v1::NodeCall& call);

}  // namespace torpor::control::core
