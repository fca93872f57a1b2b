#pragma once
// States of an actor: which edges are legal and what each verb does in each state. The API, the
// core and the tests ask these two tables and nothing else. Pure.

#include <string>
#include <string_view>
#include <vector>

#include "ateapi/ateapi.pb.h"
#include "torpor/v1/extensions.pb.h"

namespace torpor {

// What a call of a verb gets.
enum class VerbAnswer {
  kStart,    // begins the operation
  kOk,       // success at once
  kJoin,     // waits for the operation under way and gets its outcome
  kWait,     // waits for that operation to end (or to free the guest), then is asked again
  kBusy,     // ABORTED OPERATION_IN_PROGRESS
  kNo,       // FAILED_PRECONDITION WRONG_STATE
  kCrashed,  // FAILED_PRECONDITION ACTOR_CRASHED
};

// `verb` is RESUME, PAUSE, SUSPEND, REVERT or DELETE; `any_state` matters for DELETE only;
// `uploading` says that a SUSPENDING actor has its complete local generation.
VerbAnswer AnswerVerb(ateapi::ActorState state, torpor::v1::Verb verb, bool any_state,
                      bool uploading);

// The states in which AnswerVerb lets `verb` start, for messages: "RUNNING, PAUSED".
std::string StatesThatAllow(torpor::v1::Verb verb);

// True when an actor may go from `from` to `to` in one step; staying is not an edge.
bool IsLegalEdge(ateapi::ActorState from, ateapi::ActorState to);
// RESUMING, PAUSING, SUSPENDING, REVERTING, DELETING: an operation is open.
bool IsTransitional(ateapi::ActorState state);
// "RUNNING"; "pause".
std::string StateName(ateapi::ActorState state);
std::string VerbName(torpor::v1::Verb verb);

}  // namespace torpor
