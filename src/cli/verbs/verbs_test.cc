#include "cli/verbs/why.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/testing/matchers.h"
#include "cli/output.h"
#include "cli/session.h"
#include "cli/verbs/lifecycle.h"
#include "cli/verbs/template_flags.h"
#include "cli/verbs/url.h"

namespace torpor::cli {
namespace {

TEST(DrawReport, BarsSitOnOneAxis) {
  torpor::v1::OperationReport report;
  report.set_verb(torpor::v1::VERB_RESUME);
  report.set_total_ms(100);
  report.set_generation(7);
  auto* place = report.add_phases();
  place->set_name("place");
  place->set_duration_ms(0.1);
  auto* restore = report.add_phases();
  restore->set_name("restore");
  restore->set_start_ms(50);
  restore->set_duration_ms(50);
  restore->set_error_reason("RUNTIME_FAILED");
  auto* choice = report.add_choices();
  choice->set_question("worker");
  choice->set_answer("gvisor-0");
  choice->set_reason("least loaded");
  auto* lost = choice->add_rejected();
  lost->set_candidate("gvisor-1");
  lost->set_reason("full");
  const std::string text = DrawReport(report);
  EXPECT_NE(text.find("RESUME by - at"), std::string::npos) << text;
  EXPECT_NE(text.find("place   #......................................."), std::string::npos)
      << text;
  EXPECT_NE(text.find("restore ....................####################"), std::string::npos)
      << text;
  EXPECT_NE(text.find("FAILED RUNTIME_FAILED"), std::string::npos) << text;
  EXPECT_NE(text.find("worker: gvisor-0, because least loaded"), std::string::npos) << text;
  EXPECT_NE(text.find("not gvisor-1: full"), std::string::npos) << text;
}

TEST(ExitCodes, OnePerKindOfFailure) {
  const std::pair<Code, int> cases[] = {{Code::kOk, 0},
                                        {Code::kNotFound, 4},
                                        {Code::kAborted, 5},
                                        {Code::kAlreadyExists, 5},
                                        {Code::kFailedPrecondition, 5},
                                        {Code::kUnavailable, 6},
                                        {Code::kDeadlineExceeded, 6},
                                        {Code::kResourceExhausted, 6},
                                        {Code::kPermissionDenied, 7},
                                        {Code::kUnauthenticated, 7},
                                        {Code::kInvalidArgument, 1},
                                        {Code::kDataLoss, 1}};
  for (const auto& [code, exit] : cases) {
    Status status = code == Code::kOk ? OkStatus() : Error(code, "X", "x");
    EXPECT_EQ(ExitCodeOf(status), exit) << static_cast<int>(code);
  }
}

TEST(Errors, L4_AsJson) {
  Status status = Error(Code::kFailedPrecondition, "ACTOR_CRASHED", "demo/a: it \"ended\"",
                        {{"actor", "demo/a"}, {"state", "CRASHED"}});
  const auto error = nlohmann::json::parse(ErrorJson(status))["error"];
  EXPECT_EQ(error["code"], "FAILED_PRECONDITION");
  EXPECT_EQ(error["reason"], "ACTOR_CRASHED");
  EXPECT_EQ(error["message"], "demo/a: it \"ended\"");
  EXPECT_EQ(error["metadata"]["state"], "CRASHED");
  EXPECT_EQ(error["exitCode"], 5);
  EXPECT_NE(error["advice"].get<std::string>().find("torpor revert demo/a"), std::string::npos);
}

TEST(Errors, L1_AllPartsOfAFailure) {
  Status status = Error(Code::kInternal, "WORKLOAD_EXITED", "the program ended with exit code 3",
                        {{"actor", "demo/a"}, {"step", "probe"}, {"last_line", "no such table"}});
  testing::internal::CaptureStderr();
  EXPECT_EQ(Report(status), 1);
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "error: the program ended with exit code 3 (WORKLOAD_EXITED): torpor logs demo/a shows "
            "what it printed; torpor why demo/a\n"
            "  step: probe\n"
            "  last line: no such table\n");
}

TEST(DrawState, L3_SaysWhereTheStateIsAndWhatItSurvives) {
  ateapi::Actor actor;
  actor.mutable_metadata()->set_atespace("demo");
  actor.mutable_metadata()->set_name("a");
  auto& status = *actor.mutable_status();
  status.set_generation(7);
  status.set_assigned_node("n1");
  status.set_state(ateapi::ACTOR_STATE_RUNNING);
  EXPECT_EQ(DrawState(actor), "demo/a is RUNNING, generation 7 on node n1");
  status.set_state(ateapi::ACTOR_STATE_PAUSED);
  EXPECT_EQ(DrawState(actor),
            "demo/a is PAUSED, generation 7, on the disk of node n1; it does not survive the loss "
            "of that disk until it is suspended");
  status.mutable_external_snapshot()->set_snapshot_uri("file:///x");
  EXPECT_EQ(DrawState(actor),
            "demo/a is PAUSED, generation 7, on the disk of node n1; an older state is in the "
            "object store");
  status.set_state(ateapi::ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(DrawState(actor),
            "demo/a is SUSPENDED, generation 7, in the object store; it survives the loss of this "
            "machine");
  status.clear_external_snapshot();
  EXPECT_EQ(DrawState(actor),
            "demo/a is SUSPENDED, generation 7, without a snapshot: the next wake is a cold boot");
}

TEST(Secrets, L8_ValuesOfTheEnvironmentAreRedacted) {
  ateapi::ActorTemplate t;
  auto* env = t.add_containers()->add_env();
  env->set_name("KEY");
  env->set_value("canary");
  t.add_containers();
  RedactSecrets(&t);
  EXPECT_EQ(t.containers(0).env(0).value(), "[redacted]");
  EXPECT_EQ(t.containers(0).env(0).name(), "KEY");
}

TEST(Session, NamesMayCarryTheirAtespace) {
  Settings settings;
  settings.atespace = "demo";
  Session session(settings);
  EXPECT_EQ(session.Ref("a").atespace(), "demo");
  EXPECT_EQ(session.Ref("other/a").atespace(), "other");
  EXPECT_EQ(session.Ref("other/a").name(), "a");
}

TEST(TemplateFlags, FlagsBecomeFields) {
  TemplateFlags flags;
  flags.image = "web@sha256:abc";
  flags.port = 8080;
  flags.probe = "/readyz";
  flags.memory = "256Mi";
  flags.pause_after = "30s";
  flags.on_crash = "revert";
  flags.env = {"A=b=c"};
  ateapi::ObjectRef name;
  name.set_atespace("demo");
  name.set_name("web");
  ASSERT_OK_AND_ASSIGN(auto t, MakeTemplate(flags, name));
  EXPECT_EQ(t.http_port(), 8080);
  EXPECT_EQ(t.containers(0).wakeup_probe().http_get().port(), 8080);
  EXPECT_EQ(t.containers(0).env(0).value(), "b=c");
  EXPECT_EQ(t.idle_policy().pause_after().seconds(), 30);
  EXPECT_EQ(t.crash_policy().on_crash(), torpor::v1::ON_CRASH_REVERT);
  EXPECT_EQ(t.sandbox_config().config_name(), "gvisor");
  flags.env = {"novalue"};
  EXPECT_THAT(MakeTemplate(flags, name), MessageHas("NAME=VALUE"));
  flags.env.clear();
  flags.pause_after = "soon";
  EXPECT_THAT(MakeTemplate(flags, name), MessageHas("--pause-after"));
}

TEST(Url, BothForms) {
  ateapi::ObjectRef actor;
  actor.set_atespace("demo");
  actor.set_name("a");
  EXPECT_EQ(DrawUrl(actor, "127.0.0.1:7780", "actors.localhost"),
            "http://a.demo.actors.localhost:7780/\n"
            "curl -H 'ate-target-actor: demo/a' http://127.0.0.1:7780/\n");
}

}  // namespace
}  // namespace torpor::cli
