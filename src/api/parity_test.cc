// One recorded set of calls, over gRPC and over JSON, against two equal worlds with a real control
// plane: the answers must be equal, and every error must carry a reason.

#include <gtest/gtest.h>

#include <future>

#include "api/testing/world.h"

namespace torpor::api {
namespace {

using nlohmann::json;
using std::chrono::milliseconds;

struct Step {
  const char* path;
  std::string body;
  const char* reason = "";  // of the error that must come; empty = success
};

const std::string kTagRef = R"({"tag": {"atespace": "demo", "name": "t"}})";
const std::string kTag = R"({"tag": {"metadata": {"atespace": "demo", "name": "t"},
                             "sourceActor": {"atespace": "demo", "name": "a"},
                             "scope": "TAG_SCOPE_ATESPACE"}})";
const std::string kFork =
    R"({"tag": {"atespace": "demo", "name": "t"}, "count": 1, "names": ["x"])";

std::vector<Step> Recorded() {
  return {
      {"/ateapi.Control/GetActor", kRef, "ACTOR_NOT_FOUND"},
      {"/ateapi.Control/CreateActorTemplate", kTemplate, "PARENT_NOT_FOUND"},
      {"/ateapi.Control/CreateAtespace", R"({"atespace": {"metadata": {"name": "demo"}}})"},
      {"/ateapi.Control/CreateAtespace", R"({"atespace": {"metadata": {"name": "demo"}}})",
       "ALREADY_EXISTS"},
      {"/ateapi.Control/CreateAtespace", R"({"atespace": {"metadata": {"name": "../demo"}}})",
       "FIELD_INVALID"},
      {"/ateapi.Control/GetAtespace", R"({"atespace": {"name": "demo"}})"},
      {"/ateapi.Control/GetAtespace", R"({"atespace": {"name": "none"}})", "ATESPACE_NOT_FOUND"},
      {"/ateapi.Control/ListAtespaces", "{}"},
      {"/ateapi.Control/ListAtespaces", R"({"pageToken": "forged"})", "PAGE_TOKEN_INVALID"},
      {"/ateapi.Control/DeleteAtespace", R"({"atespace": {"name": "ate-golden"}})",
       "RESERVED_ATESPACE"},
      {"/ateapi.Control/CreateActor", kActor, "TEMPLATE_NOT_FOUND"},
      {"/ateapi.Control/CreateActorTemplate", kTemplate},
      {"/ateapi.Control/CreateActorTemplate", kTemplate, "ALREADY_EXISTS"},
      {"/ateapi.Control/GetActorTemplate",
       R"({"actorTemplate": {"atespace": "demo", "name": "counter"}})"},
      {"/ateapi.Control/ListActorTemplates", R"({"atespace": "demo"})"},
      {"/ateapi.Control/CreateActor", kActor},
      {"/ateapi.Control/CreateActor", kActor, "ALREADY_EXISTS"},
      {"/ateapi.Control/GetActor", kRef},
      {"/ateapi.Control/ListActors", "{}"},
      {"/ateapi.Control/PauseActor", kRef, "WRONG_STATE"},
      {"/ateapi.Control/ResumeActor", kRef},
      {"/ateapi.Control/ResumeActor", kRef},
      {"/ateapi.Control/GetActor", kRef},
      {"/ateapi.Control/ListWorkers", "{}"},
      {"/ateapi.Control/ListWorkerActorAssignments",
       R"({"worker": {"name": ")" + std::string(kFakeWorkerUid) + R"("}})"},
      {"/ateapi.Control/DeleteActor", kRef, "WRONG_STATE"},
      {"/ateapi.Control/PauseActor", kRef},
      {"/ateapi.Control/PauseActor", kRef},
      {"/ateapi.Control/ResumeActor", kRef},
      {"/ateapi.Control/SuspendActor", kRef},
      {"/ateapi.Control/SuspendActor", kRef},
      {"/ateapi.Control/ResumeActor", kRef},
      {"/ateapi.Control/RevertActor", kRef},
      {"/torpor.v1.Ops/WaitActor",
       R"({"actor": {"atespace": "demo", "name": "a"}, "states": ["ACTOR_STATE_SUSPENDED"]})"},
      {"/torpor.v1.Ops/ExplainActor", kRef},
      {"/torpor.v1.Ops/ListEvents", R"({"atespace": "demo"})"},
      {"/torpor.v1.Ops/ListGenerations", kRef},
      {"/torpor.v1.Ops/GetNode", R"({"name": "node-1"})"},
      {"/torpor.v1.Ops/GetNode", R"({"name": "node-2"})", "NODE_NOT_FOUND"},
      {"/torpor.v1.Ops/ListNodes", "{}"},
      {"/torpor.v1.Ops/KeepActorAwake",
       R"({"actor": {"atespace": "demo", "name": "a"}, "duration": "5s"})"},
      {"/torpor.v1.Ops/DrainNode", R"({"name": "node-1", "mode": "MODE_CORDON"})"},
      {"/torpor.v1.Ops/DrainNode", R"({"name": "node-1", "cancel": true})"},
      {"/torpor.v1.Ops/DrainNode", R"({"name": "node-2"})", "NODE_NOT_FOUND"},
      {"/torpor.v1.Ops/CheckRecords", "{}"},
      {"/torpor.v1.Ops/GetUsage", "{}", "NOT_IMPLEMENTED"},
      {"/torpor.v1.Ops/RollbackActor", "{}", "FIELD_INVALID"},
      {"/torpor.v1.Ops/RollbackActor",
       R"({"actor": {"atespace": "demo", "name": "a"}, "generation": "99"})",
       "GENERATION_NOT_FOUND"},
      {"/ateapi.Control/GetTag", kTagRef, "TAG_NOT_FOUND"},
      {"/ateapi.Control/CreateTag", "{}", "FIELD_INVALID"},
      {"/ateapi.Control/CreateTag", kTag},
      {"/ateapi.Control/CreateTag", kTag, "ALREADY_EXISTS"},
      {"/ateapi.Control/GetTag", kTagRef},
      {"/ateapi.Control/ListTags", "{}"},
      {"/ateapi.Control/UpdateTag", kTag, "PRECONDITION_MISSING"},
      {"/torpor.v1.Ops/ForkActor", "{}", "FIELD_INVALID"},
      {"/torpor.v1.Ops/ForkActor", kFork + R"(, "requestId": "x"})", "NOT_IMPLEMENTED"},
      {"/torpor.v1.Ops/ForkActor", kFork + "}"},
      {"/torpor.v1.Ops/ForkActor", kFork + "}", "ALREADY_EXISTS"},
      {"/ateapi.Control/DeleteTag", kTagRef, "TAG_IN_USE"},
      {"/ateapi.Control/DeleteActor", R"({"actor": {"atespace": "demo", "name": "x"}})"},
      {"/ateapi.Control/DeleteTag", kTagRef},
      {"/torpor.v1.Ops/ForkActor",
       R"({"actor": {"atespace": "demo", "name": "a"}, "count": 1, "names": ["y"]})"},
      {"/ateapi.Control/DeleteActor", R"({"actor": {"atespace": "demo", "name": "y"}})"},
      {"/ateapi.Control/ListTags", "{}"},
      {"/ateapi.Control/GetWorker", R"({"worker": {"name": "none"}})", "WORKER_NOT_FOUND"},
      {"/ateapi.Control/DrainWorker",
       R"({"worker": {"name": ")" + std::string(kFakeWorkerUid) + R"("}})"},
      {"/ateapi.Control/ResumeActor", kRef, "NO_CAPACITY"},
      {"/ateapi.Control/UpdateActor", kActor, "PRECONDITION_MISSING"},
      {"/ateapi.Control/DeleteAtespace", R"({"atespace": {"name": "demo"}})", "ATESPACE_NOT_EMPTY"},
      {"/ateapi.Control/DeleteActor", kRef},
      {"/ateapi.Control/DeleteActorTemplate",
       R"({"actorTemplate": {"atespace": "demo", "name": "counter"}})"},
      {"/ateapi.Control/DeleteAtespace", R"({"atespace": {"name": "demo"}})"},
  };
}

TEST(ParityTest, GrpcAndJsonGiveEqualAnswers) {
  FakeClock clock, other_clock;
  World over_grpc(&clock), over_json(&other_clock);
  for (const Step& step : Recorded()) {
    SCOPED_TRACE(std::string(step.path) + " " + step.body);
    const json a = over_grpc.OverGrpc(step.path, step.body, std::chrono::seconds(20));
    const json b = over_json.OverJson(step.path, step.body, std::chrono::seconds(20));
    EXPECT_EQ(a, b);
    EXPECT_EQ(ReasonIn(a), step.reason) << a;
  }
}

// A call that waits is told the operation when its deadline comes, and the operation goes on.
TEST(WaitingTest, ADeadlineNamesTheOperation) {
  World world(Clock::Real());
  world.MakeActor();
  world.node()->Hold();
  const json late = world.OverJson("/ateapi.Control/ResumeActor", kRef, milliseconds(200));
  EXPECT_EQ(late["code"], "deadline_exceeded") << late;
  EXPECT_EQ(ReasonIn(late), "DEADLINE_EXCEEDED") << late;
  EXPECT_NE(late.dump().find("op_id"), std::string::npos) << late;
  const json busy = world.OverGrpc("/ateapi.Control/SuspendActor", kRef, std::chrono::seconds(20));
  EXPECT_EQ(ReasonIn(busy), "OPERATION_IN_PROGRESS") << busy;
  world.node()->Release();
  const json awake = world.OverJson("/ateapi.Control/ResumeActor", kRef, std::chrono::seconds(20));
  EXPECT_EQ(awake["actor"]["status"]["state"], "ACTOR_STATE_RUNNING") << awake;
}

TEST(WaitingTest, AStopTellsTheWaitingCallers) {
  World world(Clock::Real());
  world.MakeActor();
  world.node()->Hold();
  auto grpc = std::async(std::launch::async, [&] {
    return world.OverGrpc("/ateapi.Control/ResumeActor", kRef, std::chrono::seconds(20));
  });
  // Joined to the same operation once the state shows it.
  EXPECT_EQ(ReasonIn(world.OverJson("/torpor.v1.Ops/WaitActor",
                                    R"({"actor": {"atespace": "demo", "name": "a"},
                                        "states": ["ACTOR_STATE_RESUMING"]})",
                                    std::chrono::seconds(20))),
            "");
  world.StopControl();
  EXPECT_EQ(ReasonIn(grpc.get()), "SHUTTING_DOWN");
  EXPECT_EQ(ReasonIn(world.OverJson("/ateapi.Control/GetActor", kRef, std::chrono::seconds(20))),
            "SHUTTING_DOWN");
}

}  // namespace
}  // namespace torpor::api
