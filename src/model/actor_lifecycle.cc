#include "model/actor_lifecycle.h"

#include <algorithm>
#include <cctype>

namespace torpor {
namespace {

using ateapi::ActorState;
using torpor::v1::Verb;
using enum VerbAnswer;

constexpr ActorState kRunning = ateapi::ACTOR_STATE_RUNNING;
constexpr ActorState kPaused = ateapi::ACTOR_STATE_PAUSED;
constexpr ActorState kSuspended = ateapi::ACTOR_STATE_SUSPENDED;
constexpr ActorState kCrashedState = ateapi::ACTOR_STATE_CRASHED;
constexpr ActorState kResuming = ateapi::ACTOR_STATE_RESUMING;
constexpr ActorState kPausing = ateapi::ACTOR_STATE_PAUSING;
constexpr ActorState kSuspending = ateapi::ACTOR_STATE_SUSPENDING;
constexpr ActorState kReverting = ateapi::ACTOR_STATE_REVERTING;
constexpr ActorState kDeleting = ateapi::ACTOR_STATE_DELETING;

struct Answers {
  ActorState state;
  VerbAnswer resume, pause, suspend, revert, rollback, remove, remove_any;
};

constexpr Answers kAnswers[] = {
    // state        resume    pause     suspend   revert  rollback delete  delete any_state
    {kRunning, kOk, kStart, kStart, kStart, kStart, kNo, kStart},
    {kPaused, kStart, kOk, kStart, kStart, kStart, kNo, kStart},
    {kSuspended, kStart, kNo, kOk, kNo, kStart, kStart, kStart},
    {kCrashedState, kCrashed, kCrashed, kCrashed, kStart, kStart, kStart, kStart},
    {kResuming, kJoin, kBusy, kBusy, kBusy, kBusy, kBusy, kStart},
    {kPausing, kWait, kJoin, kBusy, kBusy, kBusy, kBusy, kStart},
    {kSuspending, kWait, kBusy, kJoin, kBusy, kBusy, kBusy, kStart},
    {kReverting, kBusy, kBusy, kBusy, kJoin, kBusy, kBusy, kStart},
    {kDeleting, kNo, kNo, kNo, kNo, kNo, kJoin, kJoin},
};

struct Edge {
  ActorState from, to;
};

constexpr Edge kEdges[] = {
    {kSuspended, kResuming},
    {kPaused, kResuming},
    {kSuspending, kResuming},  // upload phase: from the local generation
    {kResuming, kRunning},
    {kResuming, kPaused},  // failed before the guest ran; PAUSED also when it overtook an upload
    {kResuming, kSuspended},
    {kRunning, kPausing},
    {kPausing, kPaused},
    {kPausing, kRunning},  // the capture failed, the guest is alive
    {kRunning, kSuspending},
    {kPaused, kSuspending},
    {kSuspending, kSuspended},
    {kSuspending, kRunning},  // as PAUSING
    {kRunning, kReverting},
    {kPaused, kReverting},
    {kCrashedState, kReverting},
    {kSuspended, kReverting},  // rollback
    {kReverting, kSuspended},
    {kRunning, kCrashedState},
    {kResuming, kCrashedState},
    {kPausing, kCrashedState},
    {kSuspending, kCrashedState},
    {kPaused, kCrashedState},
    {kReverting, kCrashedState},
    {kSuspended, kDeleting},
    {kCrashedState, kDeleting},
    {kRunning, kDeleting},
    {kPaused, kDeleting},
    {kResuming, kDeleting},
    {kPausing, kDeleting},
    {kSuspending, kDeleting},
    {kReverting, kDeleting},
};

}  // namespace

VerbAnswer AnswerVerb(ActorState state, Verb verb, bool any_state, bool uploading) {
  for (const Answers& row : kAnswers) {
    if (row.state != state) continue;
    switch (verb) {
      case torpor::v1::VERB_RESUME:
        return state == kSuspending && uploading ? kStart : row.resume;
      case torpor::v1::VERB_PAUSE:
        return row.pause;
      case torpor::v1::VERB_SUSPEND:
        return row.suspend;
      case torpor::v1::VERB_REVERT:
        return row.revert;
      case torpor::v1::VERB_ROLLBACK:
        return row.rollback;
      case torpor::v1::VERB_DELETE:
        return any_state ? row.remove_any : row.remove;
      default:
        return kNo;
    }
  }
  return kNo;
}

std::string StatesThatAllow(Verb verb) {
  std::string out;
  for (const Answers& row : kAnswers) {
    VerbAnswer answer = AnswerVerb(row.state, verb, false, false);
    if (answer != kStart && answer != kOk) continue;
    if (!out.empty()) out += ", ";
    out += StateName(row.state);
  }
  return out;
}

bool IsLegalEdge(ActorState from, ActorState to) {
  return std::any_of(std::begin(kEdges), std::end(kEdges),
                     [&](const Edge& edge) { return edge.from == from && edge.to == to; });
}

bool IsTransitional(ActorState state) {
  return state == kResuming || state == kPausing || state == kSuspending || state == kReverting ||
         state == kDeleting;
}

std::string StateName(ActorState state) {
  constexpr std::string_view kPrefix = "ACTOR_STATE_";
  std::string name = ateapi::ActorState_Name(state);
  return name.rfind(kPrefix, 0) == 0 ? name.substr(kPrefix.size()) : name;
}

std::string VerbName(Verb verb) {
  constexpr std::string_view kPrefix = "VERB_";
  std::string name = torpor::v1::Verb_Name(verb);
  if (name.rfind(kPrefix, 0) == 0) name = name.substr(kPrefix.size());
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return name;
}

}  // namespace torpor
