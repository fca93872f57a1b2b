#include "bench/scenario.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace torpor::bench {
namespace {

using ::testing::HasSubstr;

std::string ErrorOf(const std::string& text) {
  auto parsed = ParseScenario(text, "s.yaml");
  EXPECT_EQ(parsed.status().code(), Code::kInvalidArgument);
  return std::string(parsed.status().message());
}

TEST(ScenarioTest, ReadsKnobsByTheirPublicNames) {
  auto s = ParseScenario(
      "name: a\nabout: b\nsource: c\nusers: 3\nactor-memory: 600Mi\nmem-target: 500Mi\n"
      "mem-churn: 64Mi\nmem-read: all\nlifecycle-mode: suspend\nmin-wait-time: 500ms\n"
      "max-wait-time: 2s\nverify: echo\n",
      "s.yaml");
  ASSERT_TRUE(s.ok()) << s.status();
  EXPECT_EQ(s->name, "a");
  EXPECT_EQ(s->users, 3);
  EXPECT_EQ(s->actor_memory, 600 << 20);
  EXPECT_EQ(s->mem_target, 500 << 20);
  EXPECT_EQ(s->mem_read, Scenario::kReadAll);
  EXPECT_EQ(s->lifecycle_mode, "suspend");
  EXPECT_EQ(s->min_wait, std::chrono::milliseconds(500));
  EXPECT_EQ(s->max_wait, std::chrono::seconds(2));
  EXPECT_EQ(s->verify, "echo");
}

TEST(ScenarioTest, ErrorsNameTheLine) {
  EXPECT_THAT(ErrorOf("name: a\nuser: 3\n"), HasSubstr("s.yaml:2: unknown key 'user'; allowed: "));
  EXPECT_THAT(ErrorOf("name: a\n\nusers: many\n"),
              HasSubstr("s.yaml:3: users is 'many', but must be a number from 0 to 1000"));
  EXPECT_THAT(ErrorOf("name: a\nusers: 0\n"), HasSubstr("users must be above 0"));
  EXPECT_THAT(ErrorOf("name: a\nusers: 1\nusers: 2\n"),
              HasSubstr("s.yaml:3: users is given twice"));
  EXPECT_THAT(ErrorOf("name: a\nusers: [1]\n"),
              HasSubstr("s.yaml:2: users must be a single value"));
  EXPECT_THAT(ErrorOf("name: a\n  users: : 1\n"), HasSubstr("s.yaml:"));
  EXPECT_THAT(ErrorOf("users: 1\n"), HasSubstr("name is missing"));
  EXPECT_THAT(ErrorOf("- a\n"), HasSubstr("must be a map"));
}

TEST(ScenarioTest, RefusesToRunWhatIsMissingHere) {
  constexpr int64_t kGi = 1 << 30;
  auto why = [](const std::string& text) {
    auto s = ParseScenario("name: a\n" + text, "s.yaml");
    EXPECT_TRUE(s.ok()) << s.status();
    Status status = s.ok() ? CheckRunnable(*s, 2, 8 * kGi) : s.status();
    EXPECT_EQ(status.code(), Code::kFailedPrecondition) << text;
    return std::string(status.message());
  };
  EXPECT_THAT(why("sandbox-class: microvm\n"), HasSubstr("no micro-VM runtime"));
  EXPECT_THAT(why("needs: two nodes\n"), HasSubstr("a cannot run here: it needs two nodes"));
  EXPECT_THAT(why("min-cores: 3\n"), HasSubstr("it needs 3 cores, this machine has 2"));
  EXPECT_THAT(why("min-memory: 16Gi\n"),
              HasSubstr("it needs 16Gi of memory, this machine has 8Gi"));
  EXPECT_TRUE(CheckRunnable(Scenario(), 1, kGi).ok());
}

TEST(ScenarioTest, LadderIsUsersAndDurations) {
  auto steps = ParseLadder("5:3m,10:90s");
  ASSERT_TRUE(steps.ok()) << steps.status();
  ASSERT_EQ(steps->size(), 2u);
  EXPECT_EQ((*steps)[0].users, 5);
  EXPECT_EQ((*steps)[1].duration, std::chrono::seconds(90));
  EXPECT_TRUE(ParseLadder("")->empty());
  for (const char* bad : {"5", "x:1m", "0:1m", "5:", "5:0s", "5:1m,,6:1m"}) {
    EXPECT_FALSE(ParseLadder(bad).ok()) << bad;
  }
}

TEST(ScenarioTest, ChecksKnobsTogether) {
  EXPECT_THAT(ErrorOf("name: a\nmin-wait-time: 2s\n"), HasSubstr("min-wait-time is above"));
  EXPECT_THAT(ErrorOf("name: a\nmem-churn: 1Mi\n"), HasSubstr("need a mem-target"));
  EXPECT_THAT(ErrorOf("name: a\nmem-target: 1Mi\nmem-churn: 2Mi\n"),
              HasSubstr("mem-churn is above mem-target"));
}

TEST(ScenarioTest, OverridesAreCheckedLikeTheFile) {
  Scenario s;
  EXPECT_TRUE(SetKnob(&s, "duration", "5s").ok());
  EXPECT_EQ(s.duration, std::chrono::seconds(5));
  Status bad = SetKnob(&s, "duration", "0s");
  EXPECT_EQ(bad.code(), Code::kInvalidArgument);
  EXPECT_THAT(std::string(bad.message()), HasSubstr("duration is '0s', but must be a duration"));
  EXPECT_THAT(std::string(SetKnob(&s, "name", "x").message()), HasSubstr("unknown key 'name'"));
}

TEST(ScenarioTest, RecordedValuesGiveTheSameScenarioAgain) {
  Scenario s;
  for (const auto& [knob, value] :
       {std::pair("mem-target", "1000001"), std::pair("mem-read", "all"),
        std::pair("actor-memory", "1536Mi"), std::pair("min-live-time", "250ms"),
        std::pair("duration", "90s")}) {
    ASSERT_TRUE(SetKnob(&s, knob, value).ok()) << knob;
  }
  Scenario again;
  for (const auto& [knob, value] : KnobValues(s)) {
    EXPECT_TRUE(SetKnob(&again, knob, value).ok()) << knob << "=" << value;
  }
  EXPECT_EQ(KnobValues(again), KnobValues(s));
  EXPECT_EQ(again.mem_target, 1000001);
  EXPECT_EQ(again.duration, std::chrono::seconds(90));
}

TEST(ScenarioTest, BuiltinScenariosAreValid) {
  auto all = BuiltinScenarios();
  ASSERT_TRUE(all.ok()) << all.status();
  std::set<std::string> names;
  for (const Scenario& s : *all) {
    names.insert(s.name);
    EXPECT_FALSE(s.about.empty()) << s.name;
    EXPECT_FALSE(s.source.empty()) << s.name;
  }
  EXPECT_EQ(names.size(), all->size());
  // What other people's tables are made of, and what this project's figures come from.
  for (const char* name : {"glutton_1user_500mi_gvisor_pause",
                           "glutton_1user_500mi_gvisor_suspend",
                           "glutton_mem_512mi_4_user_gvisor_pause",
                           "local_resume_512mi_gvisor",
                           "local_resume_512mi_microvm",
                           "pause_density_15_actors",
                           "glutton_baseline_1_user",
                           "glutton_baseline_5_users",
                           "glutton_baseline_10_users",
                           "glutton_baseline_1_user_pause",
                           "glutton_baseline_5_users_pause",
                           "glutton_baseline_10_users_pause",
                           "glutton_mem_1gi_gvisor",
                           "glutton_mem_1gi_gvisor_pause",
                           "glutton_mem_1gi_microvm",
                           "glutton_mem_1gi_microvm_pause",
                           "glutton_mem_2gi_gvisor",
                           "glutton_mem_2gi_gvisor_pause",
                           "glutton_mem_2gi_microvm",
                           "glutton_mem_2gi_microvm_pause",
                           "glutton_oversubscribe_15_users",
                           "durdir_data_baseline",
                           "durdir_data_pause",
                           "durdir_full_baseline",
                           "durdir_full_pause",
                           "durdir_implicit_resume",
                           "durdir_size_5mb",
                           "durdir_size_10mb",
                           "durdir_size_64mb",
                           "durdir_size_64mb_pause",
                           "observability_s0_idle_floor",
                           "observability_s1_user_sweep",
                           "observability_s2_sample_rate_sweep",
                           "observability_s3_soak",
                           "slo_gvisor_01u",
                           "slo_gvisor_05u",
                           "slo_gvisor_10u",
                           "slo_gvisor_25u",
                           "slo_gvisor_50u",
                           "slo_microvm_01u",
                           "slo_microvm_05u",
                           "slo_microvm_10u",
                           "slo_microvm_25u",
                           "slo_microvm_50u",
                           "sleep",
                           "usermem",
                           "kernelmem",
                           "counter_burst",
                           "spawn_smoke_10_actors",
                           "spawn_100",
                           "burst_10",
                           "sweperf_1",
                           "sweperf_64_probe",
                           "sweperf_150",
                           "agentsession_coding",
                           "agentsession_assistant",
                           "ingress_routercap_2cpu",
                           "ingress_routercap_4cpu",
                           "ingress_routercap_8cpu",
                           "ingress_routercap_16cpu",
                           "resume_storm_8",
                           "resume_storm_88",
                           "mover_200_suspends",
                           "delta_500mi_64mi",
                           "interrupt_suspend",
                           "inflight_pause",
                           "inflight_pause_fake",
                           "wake_16mib",
                           "wake_16mib_pool",
                           "idle_20_running",
                           "idle_100_paused",
                           "rounds_200"}) {
    EXPECT_EQ(names.count(name), 1u) << name;
  }
}

// Tables that name a scenario may be read by people who run it: what is refused says why.
TEST(ScenarioTest, EveryUnsupportedPatternSaysWhatItNeeds) {
  auto all = BuiltinScenarios();
  ASSERT_TRUE(all.ok()) << all.status();
  for (const Scenario& s : *all) {
    if (s.pattern == "batches" || s.pattern == "sweperf" || s.pattern == "session" ||
        s.pattern == "mover") {
      EXPECT_FALSE(s.needs.empty()) << s.name;
    }
  }
}

}  // namespace
}  // namespace torpor::bench
