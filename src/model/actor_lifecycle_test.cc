#include "model/actor_lifecycle.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

namespace torpor {
namespace {

using ateapi::ActorState;

// The table of the API contract, row by row: resume pause suspend revert rollback delete
// delete-any.
const std::map<std::string, std::string> kContract = {
    {"RUNNING", "ok start start start start no start"},
    {"PAUSED", "start ok start start start no start"},
    {"SUSPENDED", "start no ok no start start start"},
    {"CRASHED", "crashed crashed crashed start start start start"},
    {"RESUMING", "join busy busy busy busy busy start"},
    {"PAUSING", "wait join busy busy busy busy start"},
    {"SUSPENDING", "wait busy join busy busy busy start"},
    {"REVERTING", "busy busy busy join busy busy start"},
    {"DELETING", "no no no no no join join"},
};

std::string Name(VerbAnswer answer) {
  switch (answer) {
    case VerbAnswer::kStart:
      return "start";
    case VerbAnswer::kOk:
      return "ok";
    case VerbAnswer::kJoin:
      return "join";
    case VerbAnswer::kWait:
      return "wait";
    case VerbAnswer::kBusy:
      return "busy";
    case VerbAnswer::kNo:
      return "no";
    case VerbAnswer::kCrashed:
      return "crashed";
  }
  return "?";
}

std::vector<ActorState> AllStates() {
  std::vector<ActorState> states;
  for (int i = 1; i <= ateapi::ActorState_MAX; ++i) states.push_back(static_cast<ActorState>(i));
  return states;
}

TEST(ActorLifecycle, VerbsByState) {
  for (ActorState state : AllStates()) {
    std::string row;
    for (auto verb :
         {torpor::v1::VERB_RESUME, torpor::v1::VERB_PAUSE, torpor::v1::VERB_SUSPEND,
          torpor::v1::VERB_REVERT, torpor::v1::VERB_ROLLBACK, torpor::v1::VERB_DELETE}) {
      row += Name(AnswerVerb(state, verb, false, false)) + " ";
    }
    row += Name(AnswerVerb(state, torpor::v1::VERB_DELETE, true, false));
    ASSERT_TRUE(kContract.count(StateName(state))) << StateName(state);
    EXPECT_EQ(row, kContract.at(StateName(state))) << StateName(state);
  }
}

TEST(ActorLifecycle, ResumeStartsWhileUploading) {
  EXPECT_EQ(AnswerVerb(ateapi::ACTOR_STATE_SUSPENDING, torpor::v1::VERB_RESUME, false, true),
            VerbAnswer::kStart);
  EXPECT_EQ(AnswerVerb(ateapi::ACTOR_STATE_SUSPENDING, torpor::v1::VERB_PAUSE, false, true),
            VerbAnswer::kBusy);
}

TEST(ActorLifecycle, EdgesAreExactlyTheContract) {
  const std::map<std::string, std::set<std::string>> kEdges = {
      {"SUSPENDED", {"RESUMING", "REVERTING", "DELETING"}},
      {"PAUSED", {"RESUMING", "SUSPENDING", "REVERTING", "CRASHED", "DELETING"}},
      {"RUNNING", {"PAUSING", "SUSPENDING", "REVERTING", "CRASHED", "DELETING"}},
      {"CRASHED", {"REVERTING", "DELETING"}},
      {"RESUMING", {"RUNNING", "PAUSED", "SUSPENDED", "CRASHED", "DELETING"}},
      {"PAUSING", {"PAUSED", "RUNNING", "CRASHED", "DELETING"}},
      {"SUSPENDING", {"SUSPENDED", "RUNNING", "RESUMING", "CRASHED", "DELETING"}},
      {"REVERTING", {"SUSPENDED", "CRASHED", "DELETING"}},
  };
  for (ActorState from : AllStates()) {
    std::set<std::string> have;
    for (ActorState to : AllStates()) {
      if (IsLegalEdge(from, to)) have.insert(StateName(to));
    }
    auto want = kEdges.find(StateName(from));
    EXPECT_EQ(have, want == kEdges.end() ? std::set<std::string>() : want->second)
        << StateName(from);
  }
}

TEST(ActorLifecycle, Names) {
  EXPECT_EQ(StateName(ateapi::ACTOR_STATE_RUNNING), "RUNNING");
  EXPECT_EQ(VerbName(torpor::v1::VERB_SUSPEND), "suspend");
  EXPECT_EQ(StatesThatAllow(torpor::v1::VERB_SUSPEND), "RUNNING, PAUSED, SUSPENDED");
  EXPECT_TRUE(IsTransitional(ateapi::ACTOR_STATE_REVERTING));
  EXPECT_FALSE(IsTransitional(ateapi::ACTOR_STATE_CRASHED));
}

}  // namespace
}  // namespace torpor
