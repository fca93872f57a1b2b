// A user against a fake control plane and a fake glutton that sleep and wake together.
#include "bench/user.h"

#include <gtest/gtest.h>

#include "bench/testing/fake_glutton.h"

namespace torpor::bench {
namespace {

class FakeControl : public ActorControl {
 public:
  explicit FakeControl(FakeGlutton* glutton, FakeClock* clock) : glutton_(glutton), clock_(clock) {}

  Outcome Create(const std::string& actor) override { return Step("create", actor); }
  Outcome Resume(const std::string& actor, ActorView* view) override {
    Outcome outcome = Step("resume", actor);
    if (outcome.ok() && lose_state) glutton_->pages.assign(glutton_->pages.size(), 0);
    view->generation = generation += generation_step;
    return outcome;
  }
  Outcome Pause(const std::string& actor, ActorView* view) override {
    view->generation = ++generation;
    return Step("pause", actor);
  }
  Outcome Suspend(const std::string& actor, ActorView* view) override {
    view->generation = ++generation;
    return Step("suspend", actor);
  }
  Outcome Delete(const std::string& actor) override { return Step("delete", actor); }
  std::vector<torpor::v1::Phase> PhasesOfLastWake(const std::string&) override { return {}; }
  bool IsCrashed(const std::string&) override { return crashed; }

  bool lose_state = false;
  bool crashed = false;
  int64_t generation = 0;
  int64_t generation_step = 0;
  std::string fail_next;  // verb
  std::string fail_reason = "NO_CAPACITY";
  std::vector<std::string> calls;
  std::set<std::string> actors;

 private:
  Outcome Step(const std::string& verb, const std::string& actor) {
    calls.push_back(verb);
    actors.insert(actor);
    clock_->Advance(std::chrono::milliseconds(10));
    Outcome outcome;
    outcome.ms = 10;
    if (verb == fail_next) {
      fail_next.clear();
      outcome.status = Error(Code::kUnavailable, fail_reason, "full");
    }
    return outcome;
  }
  FakeGlutton* const glutton_;
  FakeClock* const clock_;
};

class UserTest : public ::testing::Test {
 protected:
  UserTest() : control_(&glutton_, &clock_), recorder_(&clock_) {
    scenario_.mem_target = 10 * FakeGlutton::kPage;
    scenario_.mem_churn = 3 * FakeGlutton::kPage;
    scenario_.actor_memory = 64 << 20;
  }
  User MakeUser() {
    UserWorld world;
    world.scenario = &scenario_;
    world.control = &control_;
    world.recorder = &recorder_;
    world.clock = &clock_;
    world.ids = &ids_;
    world.poster = [this](const std::string&) -> Poster {
      return [this](const std::string& path, const std::string& body) {
        return glutton_.Post(path, body);
      };
    };
    world.sleep = [this](Duration d) { clock_.Advance(d); };
    world.stopped = [] { return false; };
    return User(world, 1);
  }
  void Begin() {
    clock_.Advance(std::chrono::milliseconds(1));  // whatever happened before is before
    recorder_.BeginWindow(std::chrono::seconds(5));
  }
  Row RowOf(const std::string& name) {
    repeat_ = recorder_.Finish();
    const Row* row = FindRow(repeat_.rows, name);
    return row == nullptr ? Row{} : *row;
  }

  Scenario scenario_;
  FakeClock clock_;
  FakeGlutton glutton_;
  FakeControl control_;
  Recorder recorder_;
  SequentialIds ids_;
  Repeat repeat_;
};

TEST_F(UserTest, CyclesUntilTheWindowIsOver) {
  User user = MakeUser();
  bool ran = false;
  ASSERT_TRUE(user.SetUp([&](const ActorView&) { ran = true; }));
  EXPECT_TRUE(ran);
  Begin();
  user.Run();
  EXPECT_FALSE(user.gave_up());
  EXPECT_EQ(RowOf("ResumeActorColdStart").attempts, 1);
  EXPECT_EQ(RowOf("GluttonFillRAM").attempts, 1);
  EXPECT_EQ(RowOf("ResumeActor").attempts, 5);  // a cycle takes 1.02 s
  EXPECT_EQ(RowOf("PauseActor").attempts, 5);
  EXPECT_EQ(RowOf("GluttonChurnRAM").attempts, 5);
  EXPECT_EQ(RowOf("GluttonPing").attempts, 5);
  EXPECT_EQ(RowOf("GluttonVerify").attempts, 10);  // 2 per cycle
  EXPECT_EQ(repeat_.completed_cycles, 4);          // the first hibernation was before the window
  EXPECT_EQ(repeat_.cycles_mean, 5);
  EXPECT_EQ(repeat_.corruptions, 0);
}

TEST_F(UserTest, LostMemoryVoidsTheRun) {
  User user = MakeUser();
  ASSERT_TRUE(user.SetUp());
  Begin();
  control_.lose_state = true;
  EXPECT_FALSE(user.Cycle());
  EXPECT_TRUE(user.gave_up());
  EXPECT_TRUE(recorder_.corrupt());
}

TEST_F(UserTest, FailedOperationReplacesTheActor) {
  User user = MakeUser();
  ASSERT_TRUE(user.SetUp());
  Begin();
  control_.fail_next = "resume";
  EXPECT_FALSE(user.Cycle());
  EXPECT_FALSE(user.gave_up());
  EXPECT_EQ(control_.actors.size(), 2u);
  EXPECT_TRUE(user.Cycle());
  EXPECT_EQ(RowOf("ResumeActor").failures, 1);
  EXPECT_EQ(repeat_.replaced, 1);
  EXPECT_EQ(repeat_.unexplained, 0);
}

TEST_F(UserTest, KeepGoesOnWithTheSameActor) {
  scenario_.on_failure = "keep";
  User user = MakeUser();
  ASSERT_TRUE(user.SetUp());
  Begin();
  control_.fail_next = "pause";
  control_.crashed = true;
  EXPECT_FALSE(user.Cycle());
  EXPECT_TRUE(user.Cycle());
  EXPECT_EQ(control_.actors.size(), 1u);
  RowOf("PauseActor");
  EXPECT_EQ(repeat_.crashed, 1);
  EXPECT_EQ(repeat_.completed_cycles, 0);  // a resume after a failed pause completes nothing
}

TEST_F(UserTest, StopGivesUp) {
  scenario_.on_failure = "stop";
  User user = MakeUser();
  ASSERT_TRUE(user.SetUp());
  Begin();
  control_.fail_next = "pause";
  user.Run();
  EXPECT_TRUE(user.gave_up());
}

TEST_F(UserTest, GenerationThatGoesBackIsAFailure) {
  scenario_.on_failure = "stop";
  User user = MakeUser();
  ASSERT_TRUE(user.SetUp());
  Begin();
  control_.generation_step = -1;
  EXPECT_FALSE(user.Cycle());
  RowOf("ResumeActor");
  EXPECT_EQ(repeat_.crashed, 1);
}

TEST_F(UserTest, ImplicitWakeIsTheFirstPing) {
  scenario_.resume_mode = "implicit";
  scenario_.lifecycle_mode = "suspend";
  User user = MakeUser();
  ASSERT_TRUE(user.SetUp());
  Begin();
  ASSERT_TRUE(user.Cycle());
  EXPECT_EQ(RowOf("WakeFirstTouch").attempts, 1);
  EXPECT_EQ(RowOf("ResumeActor").attempts, 0);
  EXPECT_EQ(RowOf("SuspendActor").attempts, 1);
}

TEST_F(UserTest, ASuspendThatARequestOvertakesIsNoFailureWhereRequestsAreOpen) {
  for (const char* pattern : {"inflight", "cycle"}) {
    scenario_.pattern = pattern;
    scenario_.on_failure = "stop";
    scenario_.lifecycle_mode = "suspend";
    User user = MakeUser();
    ASSERT_TRUE(user.SetUp());
    Begin();
    control_.fail_next = "suspend";
    control_.fail_reason = "SUPERSEDED";
    EXPECT_EQ(user.Cycle(), scenario_.pattern == "inflight");
  }
  EXPECT_EQ(RowOf("SuspendActorOvertaken").attempts, 1);
}

}  // namespace
}  // namespace torpor::bench
