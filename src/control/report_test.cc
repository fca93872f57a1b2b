// Where the time of an operation went: the legs of the control plane and of the node in one report.

#include <gmock/gmock.h>

#include "control/testing/forwarding_store.h"
#include "control/testing/plane_test_base.h"

namespace torpor::control {
namespace {

using ::testing::ElementsAre;

// Every commit takes 2 ms.
class SlowStore : public ForwardingStore {
 public:
  SlowStore(Store* store, FakeClock* clock) : ForwardingStore(store), clock_(clock) {}
  Status Commit(const Batch& batch) override {
    clock_->Advance(std::chrono::milliseconds(2));
    return ForwardingStore::Commit(batch);
  }

 private:
  FakeClock* const clock_;
};

class Report : public PlaneTest {
 protected:
  void SetUp() override {
    PlaneTest::SetUp();
    plane.reset();
    slow_ = std::make_unique<SlowStore>(&store(), &clock);
    ControlPlane::Parts parts{slow_.get(), world().admin(), world().clients(), &clock, &ids};
    auto made = ControlPlane::Create(parts, settings, /*threaded=*/false);
    ASSERT_THAT(made, IsOk());
    plane = std::move(*made);
    MakeAll();
    world().on_run = [this](const std::string&) { clock.Advance(std::chrono::milliseconds(10)); };
  }
  void TearDown() override { plane.reset(); }  // before the store

  torpor::v1::OperationReport Last(torpor::v1::Verb verb) {
    torpor::v1::ExplainActorRequest explain;
    *explain.mutable_actor() = Ref("a");
    explain.add_verbs(verb);
    auto report = plane->ExplainActor(explain);
    EXPECT_THAT(report, IsOk());
    if (!report.ok() || report->reports().empty()) return {};
    return report->reports(0);
  }
  static std::vector<std::string> Names(const torpor::v1::OperationReport& report) {
    std::vector<std::string> names;
    for (const auto& phase : report.phases()) names.push_back(phase.name());
    return names;
  }
  static torpor::v1::Phase Find(const torpor::v1::OperationReport& report,
                                const std::string& name) {
    for (const auto& phase : report.phases()) {
      if (phase.name() == name) return phase;
    }
    ADD_FAILURE() << "no phase " << name;
    return {};
  }
  // In order, and none after the end.
  static void CheckTimes(const torpor::v1::OperationReport& report) {
    double at = 0;
    for (const auto& phase : report.phases()) {
      EXPECT_GE(phase.start_ms(), at) << phase.name();
      at = phase.start_ms();
      EXPECT_LE(phase.start_ms() + phase.duration_ms(), report.total_ms()) << phase.name();
    }
  }

  std::unique_ptr<SlowStore> slow_;
};

TEST_F(Report, Resume) {
  auto slot = StartResume("a");
  clock.Advance(std::chrono::milliseconds(3));  // in the writer's queue
  ASSERT_OK(Await(slot));
  torpor::v1::OperationReport report = Last(torpor::v1::VERB_RESUME);
  EXPECT_THAT(Names(report), ElementsAre("load", "place", "bind", "boot", "finalize"));
  CheckTimes(report);
  EXPECT_DOUBLE_EQ(Find(report, "load").duration_ms(), 3);
  EXPECT_DOUBLE_EQ(Find(report, "bind").start_ms(), 3);
  EXPECT_DOUBLE_EQ(Find(report, "bind").duration_ms(), 2);
  EXPECT_DOUBLE_EQ(Find(report, "boot").start_ms(), 6) << "1 ms after the request left";
  EXPECT_DOUBLE_EQ(Find(report, "finalize").start_ms(), 15);
  EXPECT_DOUBLE_EQ(report.total_ms(), 15);
  EXPECT_EQ(Find(report, "bind").component(), "control");
}

TEST_F(Report, WaitingForRoomIsPlacing) {
  ASSERT_OK(plane->RegisterNode(world().Registration(int64_t{100} << 20)));  // too small
  auto slot = StartResume("a", std::chrono::seconds(30));
  Run();
  clock.Advance(std::chrono::seconds(4));
  Register();
  ASSERT_OK(Await(slot));
  torpor::v1::OperationReport report = Last(torpor::v1::VERB_RESUME);
  CheckTimes(report);
  EXPECT_NEAR(Find(report, "place").duration_ms(), 4000, 20);
  EXPECT_GT(report.total_ms(), 4000);
}

TEST_F(Report, PauseSuspendAndTheWakes) {
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartPause("a")));
  torpor::v1::OperationReport pause = Last(torpor::v1::VERB_PAUSE);
  EXPECT_THAT(Names(pause), ElementsAre("mark", "checkpoint", "release", "finalize"));
  CheckTimes(pause);
  EXPECT_DOUBLE_EQ(Find(pause, "mark").duration_ms(), 2);

  ASSERT_OK(Await(StartResume("a")));
  EXPECT_THAT(Names(Last(torpor::v1::VERB_RESUME)),
              ElementsAre("load", "place", "bind", "restore", "finalize"));
  ASSERT_OK(Await(StartSuspend("a")));
  torpor::v1::OperationReport suspend = Last(torpor::v1::VERB_SUSPEND);
  EXPECT_THAT(Names(suspend),
              ElementsAre("mark", "checkpoint", "release", "upload", "prune", "finalize"));
  CheckTimes(suspend);
  EXPECT_DOUBLE_EQ(Find(suspend, "release").duration_ms(), 2) << "until the upload has left";
  EXPECT_GE(suspend.total_ms(), 24);

  world().local_snapshots.clear();
  ASSERT_OK(Await(StartResume("a")));
  torpor::v1::OperationReport wake = Last(torpor::v1::VERB_RESUME);
  EXPECT_THAT(Names(wake), ElementsAre("load", "place", "bind", "fetch", "restore", "finalize"))
      << "fetch is one leg, whoever takes its time";
  EXPECT_EQ(Find(wake, "fetch").component(), "mover");
}

TEST_F(Report, SuspendOfPausedRevertAndRestartInBetween) {
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartPause("a")));
  ASSERT_OK(Await(StartSuspend("a")));
  torpor::v1::OperationReport suspend = Last(torpor::v1::VERB_SUSPEND);
  EXPECT_THAT(Names(suspend), ElementsAre("mark", "upload", "prune", "finalize"));
  CheckTimes(suspend);

  auto slot = StartResume("a");
  plane->RunReady();
  Restart();  // what the earlier process knew of the request is gone
  RunFor(std::chrono::seconds(5));
  torpor::v1::OperationReport resume = Last(torpor::v1::VERB_RESUME);
  EXPECT_THAT(Names(resume), ElementsAre("load", "place", "bind", "restore", "finalize"));
  EXPECT_TRUE(resume.error().reason().empty());

  ASSERT_OK(Await(StartRevert("a")));
  torpor::v1::OperationReport revert = Last(torpor::v1::VERB_REVERT);
  EXPECT_THAT(Names(revert), ElementsAre("mark", "terminate", "finalize"));
  CheckTimes(revert);
}

}  // namespace
}  // namespace torpor::control
