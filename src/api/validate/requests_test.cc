// The bounds of every other request.

#include <gtest/gtest.h>

#include "api/dispatcher.h"
#include "api/http/json.h"
#include "api/testing/requests.h"
#include "api/validate/validate.h"
#include "base/testing/matchers.h"
#include "torpor/v1/ops.pb.h"

namespace torpor::api {
namespace {

using testing_requests::ViolatedFields;

struct Case {
  const char* method;
  std::string json;
  std::vector<std::string> bad_fields;
};

const std::string kLong(257, 'x');
const std::string kToken(256, 'x');
const std::string kPrefix(57, 'x');
const char* kRef = R"({"atespace": "demo", "name": "a"})";
const char* kUid = "00000000-0000-4000-8000-000000000001";

std::string Actor(const std::string& more) {
  return R"({"actor": {"metadata": {"atespace": "demo", "name": "a"}, "actorTemplate": )" +
         std::string(kRef) + more + "}}";
}
std::string Update(const std::string& uid, const std::string& version) {
  return R"({"actor": {"metadata": {"atespace": "demo", "name": "a", "uid": ")" + uid +
         R"(", "version": )" + version + R"(}, "actorTemplate": )" + std::string(kRef) + "}}";
}
std::string Tag(const std::string& source_atespace, const std::string& scope) {
  return R"({"tag": {"metadata": {"atespace": "demo", "name": "t"}, "sourceActor": {"atespace": ")" +
         source_atespace + R"(", "name": "a"}, "scope": )" + scope + "}}";
}
std::string With(const std::string& field, const std::string& more = "") {
  return "{\"" + field + "\": " + kRef + more + "}";
}
std::string Global(const std::string& field, const std::string& more = "") {
  return "{\"" + field + R"(": {"name": "a"})" + more + "}";
}
std::string Page(const std::string& size, const std::string& token) {
  return R"({"pageSize": )" + size + R"(, "pageToken": ")" + token + "\"}";
}

std::vector<Case> Control() {
  return {
      {"CreateAtespace", R"({"atespace": {"metadata": {"name": "demo"}}})", {}},
      {"CreateAtespace", "{}", {"atespace"}},
      {"CreateAtespace", R"({"atespace": {}})", {"atespace.metadata"}},
      {"CreateAtespace",
       R"({"atespace": {"metadata": {"atespace": "x", "name": "demo"}}})",
       {"atespace.metadata.atespace"}},
      {"CreateAtespace",
       R"({"atespace": {"metadata": {"name": "A"}}})",
       {"atespace.metadata.name"}},
      {"CreateAtespace",
       R"({"atespace": {"metadata": {"name": "a"}}, "requestId": ")" + std::string(64, 'x') + "\"}",
       {}},
      {"CreateAtespace",
       R"({"atespace": {"metadata": {"name": "a"}}, "requestId": ")" + std::string(65, 'x') + "\"}",
       {"request_id"}},
      {"CreateAtespace",
       R"({"atespace": {"metadata": {"name": "a"}}, "requestId": "a b"})",
       {"request_id"}},
      {"GetAtespace", Global("atespace"), {}},
      {"GetAtespace", "{}", {"atespace"}},
      {"GetAtespace", With("atespace"), {"atespace.atespace"}},
      {"GetAtespace", R"({"atespace": {"name": "../a"}})", {"atespace.name"}},
      {"DeleteAtespace", Global("atespace", R"(, "options": {"version": "1"})"), {}},
      {"DeleteAtespace",
       Global("atespace", R"(, "options": {"version": "-1", "uid": "x"})"),
       {"options.version", "options.uid"}},
      {"ListAtespaces", Page("0", kToken), {}},
      {"ListAtespaces", Page("-1", kLong), {"page_size", "page_token"}},
      {"GetActorTemplate", With("actorTemplate"), {}},
      {"GetActorTemplate", Global("actorTemplate"), {"actor_template.atespace"}},
      {"DeleteActorTemplate", With("actorTemplate"), {}},
      {"DeleteActorTemplate", "{}", {"actor_template"}},
      {"ListActorTemplates", R"({"atespace": "a b"})", {"atespace"}},
      {"CreateActor", Actor(""), {}},
      {"CreateActor", "{}", {"actor"}},
      {"CreateActor",
       R"({"actor": {"metadata": {"atespace": "demo", "name": "a"}}})",
       {"actor.actor_template"}},
      {"CreateActor", Actor(R"(, "sourceTag": {"name": "t"})"), {"actor.source_tag.atespace"}},
      {"CreateActor", Actor(R"(, "workerSelector": {})"), {"actor.worker_selector.match_labels"}},
      {"CreateActor",
       Actor(R"(, "idlePolicy": {"pauseAfter": "0.5s"})"),
       {"actor.idle_policy.pause_after"}},
      {"CreateActor",
       Actor(R"(, "crashPolicy": {"maxReverts": 101})"),
       {"actor.crash_policy.max_reverts"}},
      {"CreateActor", Actor(R"(, "status": {"state": "ACTOR_STATE_RUNNING"})"), {}},
      {"UpdateActor", Update(kUid, "1"), {}},
      {"UpdateActor", Update("", "0"), {"actor.metadata.uid", "actor.metadata.version"}},
      {"UpdateActor", Update("x", "-1"), {"actor.metadata.uid", "actor.metadata.version"}},
      {"GetActor", With("actor"), {}},
      {"GetActor", "{}", {"actor"}},
      {"GetActor", R"({"actor": {"atespace": "", "name": ""}})", {"actor.atespace", "actor.name"}},
      {"DeleteActor",
       With("actor", R"(, "anyState": true, "options": {"uid": "X"})"),
       {"options.uid"}},
      {"ResumeActor", With("actor", R"(, "waitForCapacity": "60s")"), {}},
      {"ResumeActor", With("actor", R"(, "waitForCapacity": "60.1s")"), {"wait_for_capacity"}},
      {"ResumeActor", With("actor", R"(, "waitForCapacity": "-1s")"), {"wait_for_capacity"}},
      {"PauseActor", With("actor", R"(, "fidelity": "FIDELITY_MEMORY")"), {}},
      {"PauseActor", With("actor", R"(, "fidelity": 9)"), {"fidelity"}},
      {"SuspendActor", With("actor", R"(, "fidelity": -1)"), {"fidelity"}},
      {"RevertActor", "{}", {"actor"}},
      {"ListActors", R"({"states": [1, 2, 3, 4, 5, 6, 7, 8, 9]})", {}},
      {"ListActors", R"({"states": [1, 2, 3, 4, 5, 6, 7, 8, 9, 1]})", {"states"}},
      {"ListActors", R"({"states": [1, 10]})", {"states[1]"}},
      {"ListActors", Global("actorTemplate"), {"actor_template.atespace"}},
      {"CreateTag", Tag("demo", "1"), {}},
      {"CreateTag", "{}", {"tag"}},
      {"CreateTag", Tag("demo", "0"), {"tag.scope"}},
      {"CreateTag", Tag("demo", "3"), {"tag.scope"}},
      {"CreateTag", Tag("other", "2"), {"tag.source_actor.atespace"}},
      {"CreateTag",
       R"({"tag": {"metadata": {"atespace": "demo", "name": "T"}, "scope": 1}, "requestId": "a b"})",
       {"request_id", "tag.metadata.name", "tag.source_actor"}},
      {"UpdateTag", Tag("demo", "2"), {"tag.metadata.uid", "tag.metadata.version"}},
      {"DeleteTag", With("tag", R"(, "options": {"uid": "x"})"), {"options.uid"}},
      {"DeleteTag", "{}", {"tag"}},
      {"GetTag", With("tag"), {}},
      {"GetTag", "{}", {"tag"}},
      {"ListTags", R"({"atespace": "A"})", {"atespace"}},
      {"GetWorker", Global("worker"), {}},
      {"GetWorker", With("worker"), {"worker.atespace"}},
      {"DrainWorker", "{}", {"worker"}},
      {"ListWorkers", Page("-5", ""), {"page_size"}},
      {"ListWorkerActorAssignments", R"({"pageSize": -1})", {"worker", "page_size"}},
  };
}

std::vector<Case> Ops() {
  return {
      {"WaitActor", With("actor", R"(, "states": ["ACTOR_STATE_RUNNING"], "timeout": "600s")"), {}},
      {"WaitActor",
       With("actor", R"(, "states": ["ACTOR_STATE_RUNNING"], "timeout": "601s")"),
       {"timeout"}},
      {"WaitActor", With("actor"), {"states"}},
      {"WaitActor", With("actor", R"(, "states": [0])"), {"states[0]"}},
      {"ForkActor", With("actor", R"(, "count": 100, "namePrefix": ")" + kPrefix + "\""), {}},
      {"ForkActor", With("tag", R"(, "count": 1, "atespace": "other")"), {}},
      {"ForkActor", With("actor", R"(, "count": 2, "names": ["x", "y"], "fidelity": 1)"), {}},
      {"ForkActor", "{}", {"actor", "count"}},
      {"ForkActor",
       With("actor", R"(, "count": 101, "namePrefix": "x)" + kPrefix + "\""),
       {"count", "name_prefix"}},
      {"ForkActor", With("actor", R"(, "count": 1, "atespace": "other")"), {"atespace"}},
      {"ForkActor", With("tag", R"(, "count": 1, "fidelity": 3)"), {"fidelity"}},
      {"ForkActor", With("actor", R"(, "count": 3, "names": ["x", "x"])"), {"names", "names[1]"}},
      {"ForkActor",
       With("actor", R"(, "count": 1, "names": ["X"], "namePrefix": "x")"),
       {"name_prefix", "names[0]"}},
      {"ForkActor", With("actor", R"(, "count": 1, "requestId": "a b")"), {"request_id"}},
      {"RollbackActor", With("actor", R"(, "generation": "1", "version": "2")"), {}},
      {"RollbackActor", "{}", {"actor", "generation"}},
      {"RollbackActor",
       With("actor", R"(, "generation": "-1", "uid": "x", "version": "-1", "requestId": "a b")"),
       {"generation", "uid", "version", "request_id"}},
      {"ExplainActor", With("actor", R"(, "count": 20, "opId": ")" + std::string(kUid) + "\""), {}},
      {"ExplainActor", With("actor", R"(, "count": 21)"), {"count"}},
      {"ExplainActor", With("actor", R"(, "opId": "x")"), {"op_id"}},
      {"ListEvents", R"({"nodeName": "n1.example", "startTime": "2026-01-01T00:00:00Z"})", {}},
      {"ListEvents",
       R"({"actor": {"name": "a"}, "nodeName": "N"})",
       {"actor.atespace", "node_name"}},
      {"ListGenerations", "{}", {"actor"}},
      {"GetNode", R"({"name": "n1"})", {}},
      {"GetNode", "{}", {"name"}},
      {"ListNodes", Page("-1", ""), {"page_size"}},
      {"DrainNode", R"({"name": "n1", "mode": "MODE_CORDON"})", {}},
      {"DrainNode", R"({"mode": 9, "requestId": "a b"})", {"mode", "name", "request_id"}},
      {"KeepActorAwake", With("actor", R"(, "duration": "86400s")"), {}},
      {"KeepActorAwake", With("actor", R"(, "duration": "86401s")"), {"duration"}},
      {"KeepActorAwake", R"({"duration": "-1s"})", {"actor", "duration"}},
      {"CheckRecords", R"({"atespace": "A"})", {"atespace"}},
      {"WatchActors", R"({"atespace": "demo", "actors": [{"atespace": "demo", "name": "a"}]})", {}},
      {"WatchActors",
       R"({"actors": [{"name": "a"}], "resumeToken": ")" + std::string(257, 'x') + R"("})",
       {"actors[0].atespace", "resume_token"}},
      {"ReadLogs", With("actor", R"(, "container": "main", "tailLines": 10)"), {}},
      {"ReadLogs",
       With("actor", R"(, "container": "../x", "tailLines": -1)"),
       {"container", "tail_lines"}},
  };
}

void RunCases(const std::string& service, const std::vector<Case>& cases) {
  Dispatcher dispatcher(1);
  for (const Case& c : cases) {
    SCOPED_TRACE(std::string(c.method) + " " + c.json);
    const Dispatcher::Method* method = dispatcher.Find("/" + service + "/" + c.method);
    ASSERT_NE(method, nullptr);
    auto request = Dispatcher::NewRequest(*method);
    ASSERT_OK(ParseJson(c.json, request.get()));
    Status status = Validate(*request);
    EXPECT_EQ(ViolatedFields(status), c.bad_fields);
    EXPECT_EQ(status.ok(), c.bad_fields.empty()) << status.ToString();
    EXPECT_EQ(ReasonOf(status).empty(), status.ok());
  }
}

TEST(RequestsTest, ControlBounds) { RunCases("ateapi.Control", Control()); }
TEST(RequestsTest, OpsBounds) { RunCases("torpor.v1.Ops", Ops()); }

TEST(RequestsTest, UnknownFieldsInsideAResourceAreRefusedAtAnyDepth) {
  ateapi::CreateActorRequest request;
  *request.mutable_actor() = testing_requests::Actor();
  auto* where = request.mutable_actor()->mutable_idle_policy()->mutable_pause_after();
  where->set_seconds(5);
  where->GetReflection()->MutableUnknownFields(where)->AddVarint(77, 1);
  EXPECT_THAT(Validate(request), HasReason(Code::kInvalidArgument, "UNKNOWN_FIELD"));
  EXPECT_EQ(ViolatedFields(Validate(request)),
            std::vector<std::string>{"actor.idle_policy.pause_after"});
  request.mutable_actor()->mutable_metadata()->set_name("A");
  EXPECT_THAT(Validate(request), HasReason(Code::kInvalidArgument, "UNKNOWN_FIELD"));
}

TEST(RequestsTest, UnknownFieldsOutsideAResourceAreIgnored) {
  ateapi::GetActorRequest request;
  request.mutable_actor()->set_atespace("demo");
  request.mutable_actor()->set_name("a");
  request.GetReflection()->MutableUnknownFields(&request)->AddVarint(77, 1);
  EXPECT_OK(Validate(request));
}

TEST(RequestsTest, AMissingPreconditionHasItsOwnReason) {
  ateapi::UpdateActorRequest request;
  *request.mutable_actor() = testing_requests::Actor();
  EXPECT_THAT(Validate(request), HasReason(Code::kInvalidArgument, "PRECONDITION_MISSING"));
}

TEST(RequestsTest, TimesOutsideTheirRangeAreRefused) {
  torpor::v1::ListEventsRequest request;
  request.mutable_start_time()->set_seconds(253402300800);
  request.mutable_end_time()->set_nanos(-1);
  EXPECT_EQ(ViolatedFields(Validate(request)),
            (std::vector<std::string>{"start_time", "end_time"}));
}

}  // namespace
}  // namespace torpor::api
