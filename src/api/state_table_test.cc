// What each lifecycle verb does in each state, asked through gRPC.

#include <gtest/gtest.h>

#include "api/testing/world.h"
#include "base/testing/matchers.h"

namespace torpor::api {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;
using std::chrono::seconds;

enum class Outcome {
  kSuccess,  // started and ended, or it was so already
  kWaits,    // started, joined or queued: the caller's deadline comes first
  kBusy,     // OPERATION_IN_PROGRESS
  kNo,       // WRONG_STATE
  kCrashed,  // ACTOR_CRASHED
};
constexpr Outcome S = Outcome::kSuccess, W = Outcome::kWaits, B = Outcome::kBusy, N = Outcome::kNo,
                  C = Outcome::kCrashed;

const char* const kVerbs[] = {"Resume", "Pause", "Suspend", "Revert", "Delete", "DeleteAnyState"};

struct Row {
  const char* state;
  Outcome outcomes[6];  // in the order of kVerbs
};

// In the states that end in ING the node is slow, so what is started or joined waits.
constexpr Row kTable[] = {
    {"RUNNING", {S, S, S, S, N, S}},    {"PAUSED", {S, S, S, S, N, S}},
    {"SUSPENDED", {S, N, S, N, S, S}},  {"CRASHED", {C, C, C, S, S, S}},
    {"RESUMING", {W, B, B, B, B, W}},   {"PAUSING", {W, W, B, B, B, W}},
    {"SUSPENDING", {W, B, W, B, B, W}}, {"REVERTING", {B, B, B, W, B, W}},
    {"DELETING", {N, N, N, N, W, W}},
};

// Over gRPC. Where the caller's deadline is to come first, over JSON: its client does not hang up
// at the deadline, so the answer is seen on a slow machine too.
json Ask(World* world, const std::string& verb, Duration timeout) {
  const bool any_state = verb == "DeleteAnyState";
  const std::string path =
      any_state ? "/ateapi.Control/DeleteActor" : "/ateapi.Control/" + verb + "Actor";
  const std::string body =
      any_state ? R"({"actor": {"atespace": "demo", "name": "a"}, "anyState": true})" : kRef;
  return timeout < seconds(1) ? world->OverJson(path, body, timeout)
                              : world->OverGrpc(path, body, timeout);
}

json Actor(World* world) { return world->OverGrpc("/ateapi.Control/GetActor", kRef, seconds(20)); }

void Do(World* world, const std::string& verb) {
  EXPECT_EQ(ReasonIn(Ask(world, verb, seconds(20))), "") << verb;
}

// Starts `verb` on a node that does not answer.
void Begin(World* world, const std::string& verb) {
  world->node()->Hold();
  EXPECT_EQ(ReasonIn(Ask(world, verb, milliseconds(100))), "DEADLINE_EXCEEDED") << verb;
}

void Crash(World* world) {
  const json actor = Actor(world);
  torpor::v1::ReportActorRequest report;
  report.set_lease_id(world->lease_id());
  report.mutable_exited()->set_event_id("33333333-3333-4333-8333-333333333333");
  report.mutable_exited()->set_actor_uid(actor["metadata"]["uid"].get<std::string>());
  report.mutable_exited()->set_generation(
      std::stoll(actor["status"]["generation"].get<std::string>()));
  report.mutable_exited()->set_container("main");
  report.mutable_exited()->set_reason("WORKLOAD_EXITED");
  EXPECT_OK(world->control()->ReportActor(report));
}

void Reach(World* world, const std::string& state) {
  world->MakeActor();
  if (state == "SUSPENDED") return;
  if (state == "RESUMING") return Begin(world, "Resume");
  Do(world, "Resume");
  if (state == "PAUSED") Do(world, "Pause");
  if (state == "CRASHED") Crash(world);
  if (state == "PAUSING") Begin(world, "Pause");
  if (state == "SUSPENDING") Begin(world, "Suspend");
  if (state == "REVERTING") Begin(world, "Revert");
  if (state == "DELETING") Begin(world, "DeleteAnyState");
}

Outcome OutcomeOf(const json& answer) {
  const std::string reason = ReasonIn(answer);
  if (reason == "DEADLINE_EXCEEDED") return W;
  if (reason == "OPERATION_IN_PROGRESS") return B;
  if (reason == "WRONG_STATE") return N;
  if (reason == "ACTOR_CRASHED") return C;
  EXPECT_EQ(reason, "") << answer;
  return S;
}

class StateTable : public testing::TestWithParam<Row> {};

TEST_P(StateTable, EachVerb) {
  const Row& row = GetParam();
  for (int i = 0; i < 6; ++i) {
    SCOPED_TRACE(std::string(kVerbs[i]) + " in " + row.state);
    World world(Clock::Real());
    Reach(&world, row.state);
    EXPECT_EQ(Actor(&world)["status"]["state"], std::string("ACTOR_STATE_") + row.state);
    const Duration timeout = row.outcomes[i] == W ? Duration(milliseconds(100)) : seconds(20);
    const json answer = Ask(&world, kVerbs[i], timeout);
    EXPECT_EQ(static_cast<int>(OutcomeOf(answer)), static_cast<int>(row.outcomes[i])) << answer;
  }
}

INSTANTIATE_TEST_SUITE_P(D1_MissingPrecondition, StateTable, testing::ValuesIn(kTable),
                         [](const auto& info) { return std::string(info.param.state); });

TEST(StateTableTest, ResumeOfARunningActorSaysSo) {
  World world(Clock::Real());
  Reach(&world, "RUNNING");
  EXPECT_FALSE(Ask(&world, "Resume", seconds(20)).contains("resumed"));
}

TEST(StateTableTest, ADeleteSupersedesAndTellsTheOneThatWaits) {
  World world(Clock::Real());
  Reach(&world, "RESUMING");
  EXPECT_EQ(ReasonIn(Ask(&world, "DeleteAnyState", milliseconds(100))), "DEADLINE_EXCEEDED");
  EXPECT_EQ(Actor(&world)["status"]["state"], "ACTOR_STATE_DELETING");
  world.node()->Release();
  const json end = Ask(&world, "DeleteAnyState", seconds(20));
  const std::string reason = ReasonIn(end);
  EXPECT_TRUE(reason.empty() || reason == "ACTOR_NOT_FOUND") << end;
}

}  // namespace
}  // namespace torpor::api
