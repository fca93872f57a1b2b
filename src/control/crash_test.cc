// The apiserver ends before and after every commit of every operation, and the machine loses power
// there; the next one over the same store goes on.

#include <map>

#include "control/testing/cut_store.h"
#include "control/testing/forwarding_store.h"
#include "control/testing/plane_test_base.h"

namespace torpor::control {
namespace {

using ateapi::ActorState;

enum class End { kBefore, kAfter, kPowerCut, kPowerCutWithoutLocal };

struct Scenario {
  std::string name;
  // Brings actor `a` where the operation begins; nothing is cut there.
  std::function<void(class CommitCrash&)> prepare;
  std::function<void(class CommitCrash&)> run;
  bool deletes = false;
};

class CommitCrash : public PlaneTest {
 public:
  using PlaneTest::Await;
  using PlaneTest::MakeActor;
  using PlaneTest::plane;
  using PlaneTest::Ref;
  using PlaneTest::Run;
  using PlaneTest::RunFor;
  using PlaneTest::StartDelete;
  using PlaneTest::StartPause;
  using PlaneTest::StartResume;
  using PlaneTest::StartRevert;
  using PlaneTest::StartSuspend;
  using PlaneTest::Uid;
  using PlaneTest::world;

  void Work(int64_t value) { world().sandboxes[Uid("a")].value = value; }
  // A durable generation of the value 5, then 7 in a running actor.
  void RunsWithADurableGeneration() {
    ASSERT_THAT(Await(StartResume("a")), IsOk());
    Work(5);
    ASSERT_THAT(Await(StartSuspend("a")), IsOk());
    ASSERT_THAT(Await(StartResume("a")), IsOk());
    Work(7);
  }

 protected:
  void TearDown() override { plane.reset(); }

  void Begin(const Scenario& scenario) {
    plane.reset();
    cut.reset();
    decorate = [this](Store* store) {
      if (cut == nullptr) cut = std::make_unique<CutStore>(store);
      return cut.get();
    };
    Reset();
    MakeAtespace();
    ateapi::ActorTemplate tmpl = Template();
    tmpl.mutable_snapshot_config()->set_keep_generations(0);
    ASSERT_THAT(MakeTemplate(tmpl), IsOk());
    Register();
    ASSERT_THAT(MakeActor("a"), IsOk());
    scenario.prepare(*this);
  }

  // False when the operation has fewer commits.
  bool RunCut(const Scenario& scenario, int commit, End end) {
    Begin(scenario);
    cut->CutAt(commit, end != End::kBefore);
    scenario.run(*this);
    Run();
    if (!cut->cut()) return false;
    plane.reset();
    if (end == End::kPowerCut || end == End::kPowerCutWithoutLocal) {
      auto left = cut->PowerCut();
      EXPECT_NE(left, nullptr);
      cut.reset();
      owned_store = std::move(left);
      if (end == End::kPowerCutWithoutLocal) world().local_snapshots.clear();
      world().Reboot();
      world().lease_id.clear();
      Restart();
      Register();
    } else {
      cut->Heal();
      Restart();
    }
    world().HealAll();
    RunFor(std::chrono::minutes(3));
    CheckRules();
    return true;
  }

  // Everything of the actor is gone, or it can be brought back with what was promised.
  void CheckEnd(const Scenario& scenario, End end) {
    const bool power = end == End::kPowerCut || end == End::kPowerCutWithoutLocal;
    torpor::v1::DrainNodeRequest undrain;
    undrain.set_name("node-1");
    undrain.set_cancel(true);
    ASSERT_THAT(plane->DrainNode(undrain), IsOk());
    ateapi::GetActorRequest get;
    *get.mutable_actor() = Ref("a");
    if (!plane->GetActor(get).ok()) {
      EXPECT_TRUE(scenario.deletes);
      EXPECT_TRUE(world().sandboxes.empty());
      EXPECT_TRUE(world().objects.empty()) << world().objects.begin()->first;
      return;
    }
    if (State("a") == ateapi::ACTOR_STATE_CRASHED) {
      EXPECT_TRUE(power) << Get("a").status().crash().ShortDebugString();
      ASSERT_THAT(Await(StartRevert("a")), IsOk());
    }
    ASSERT_THAT(Await(StartResume("a")), IsOk());
    const int64_t value = world().sandboxes[Uid("a")].value;
    if (value != 7) {
      // The older durable generation, by a power cut or a revert, and never less.
      EXPECT_TRUE(power || scenario.name == "revert") << value;
      EXPECT_EQ(value, 5);
    }
    EXPECT_LE(world().objects.size(), 1u) << "older generations were not removed";
    CheckRules();
  }

  void RunAll(const Scenario& scenario) {
    for (End end : {End::kBefore, End::kAfter, End::kPowerCut, End::kPowerCutWithoutLocal}) {
      int commit = 1;
      for (; commit < 100; ++commit) {
        SCOPED_TRACE(scenario.name + " commit " + std::to_string(commit) + " end " +
                     std::to_string(static_cast<int>(end)));
        if (!RunCut(scenario, commit, end)) break;
        CheckEnd(scenario, end);
        if (HasFailure()) return;
      }
      EXPECT_GT(commit, 1) << scenario.name << " commits nothing";
      EXPECT_LT(commit, 100);
    }
  }

  std::unique_ptr<CutStore> cut;
};

void Running(CommitCrash& t) { t.RunsWithADurableGeneration(); }
void Paused(CommitCrash& t) {
  t.RunsWithADurableGeneration();
  ASSERT_THAT(t.Await(t.StartPause("a")), IsOk());
}
void Suspended(CommitCrash& t) {
  t.RunsWithADurableGeneration();
  ASSERT_THAT(t.Await(t.StartSuspend("a")), IsOk());
}

TEST_F(CommitCrash, B2_Resume) {
  RunAll({"resume of paused", Paused, [](CommitCrash& t) { t.StartResume("a"); }});
  RunAll({"resume of suspended", Suspended, [](CommitCrash& t) { t.StartResume("a"); }});
}

TEST_F(CommitCrash, B2_Pause) {
  RunAll({"pause", Running, [](CommitCrash& t) { t.StartPause("a"); }});
}

TEST_F(CommitCrash, B2_Suspend) {
  RunAll({"suspend", Running, [](CommitCrash& t) { t.StartSuspend("a"); }});
}

TEST_F(CommitCrash, A14_PrunedBeforeFinalize) {
  RunAll({"suspend of paused", Paused, [](CommitCrash& t) { t.StartSuspend("a"); }});
}

TEST_F(CommitCrash, A1_OldDeletedFirst) {
  RunAll({"suspend while deletions fail", Running, [](CommitCrash& t) {
            t.world().FailNext("DeleteSnapshot", Fail(reasons::kObjectStorageUnavailable, "503"),
                               1000);
            t.StartSuspend("a");
          }});
}

TEST_F(CommitCrash, B2_Revert) {
  RunAll({"revert", Running, [](CommitCrash& t) { t.StartRevert("a"); }});
}

TEST_F(CommitCrash, B2_Rollback) {
  auto rollback = [](CommitCrash& t) {
    torpor::v1::RollbackActorRequest request;
    *request.mutable_actor() = t.Ref("a");
    request.set_generation(2);
    t.plane->RollbackActor(request, {}, [](StatusOr<torpor::v1::RollbackActorResponse>) {});
  };
  RunAll({"revert", Running, rollback});
}

TEST_F(CommitCrash, B2_Delete) {
  RunAll({"delete", Suspended, [](CommitCrash& t) { t.StartDelete("a"); }, true});
  RunAll({"delete of running", Running, [](CommitCrash& t) { t.StartDelete("a", true); }, true});
  RunAll({"delete of paused", Paused, [](CommitCrash& t) { t.StartDelete("a", true); }, true});
}

TEST_F(CommitCrash, B9_Drain) {
  RunAll({"drain", Running, [](CommitCrash& t) {
            torpor::v1::DrainNodeRequest request;
            request.set_name("node-1");
            (void)t.plane->DrainNode(request).status().ok();
            t.Run();
            request.set_cancel(true);
            (void)t.plane->DrainNode(request).status().ok();
          }});
}

// Which commits wait for the disk: none of a pause or a resume, each that names an object.
TEST_F(CommitCrash, PauseAndResumeCommitNothingDurable) {
  struct Counting : CutStore {
    using CutStore::CutStore;
    Status Commit(const Batch& batch) override {
      ++(batch.durable ? durable : others);
      return CutStore::Commit(batch);
    }
    int durable = 0;
    int others = 0;
  };
  std::unique_ptr<Counting> counting;
  decorate = [&](Store* store) {
    counting = std::make_unique<Counting>(store);
    return counting.get();
  };
  Reset();
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  counting->durable = counting->others = 0;
  for (int i = 0; i < 5; ++i) {
    ASSERT_OK(Await(StartPause("a")));
    ASSERT_OK(Await(StartResume("a")));
  }
  EXPECT_EQ(counting->durable, 0);
  EXPECT_GE(counting->others, 20);
  ASSERT_OK(Await(StartSuspend("a")));
  EXPECT_GE(counting->durable, 2) << "the address before the upload, and the outcome";
  counting->durable = 0;
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(counting->durable, 0);
  ASSERT_OK(Await(StartDelete("a", true)));
  EXPECT_GE(counting->durable, 2) << "the decision, and the end of the record";
  plane.reset();
}

// A process that slept while another one took over its store must not write what it still believes:
// it ends there, with none of the effects sent.
TEST_F(CommitCrash, B12_AStaleOwnerEndsBeforeItsEffects) {
  struct Telling : ForwardingStore {
    Telling(Store* store, std::function<void()> tell)
        : ForwardingStore(store), tell(std::move(tell)) {}
    Status Commit(const Batch& batch) override {
      tell();
      return ForwardingStore::Commit(batch);
    }
    const std::function<void()> tell;
  };
  bool awake = false;
  std::vector<std::unique_ptr<Telling>> stores;
  decorate = [&](Store* store) {
    auto tell = [&] {
      if (awake && world().queued() > 0) fputs("EFFECT SENT\n", stderr);
    };
    return stores.emplace_back(std::make_unique<Telling>(store, tell)).get();
  };
  Reset();
  MakeAll();
  Run();
  std::unique_ptr<ControlPlane> sleeper = std::move(plane);
  Restart();
  Register();
  ASSERT_OK(Await(StartResume("a")));
  Run();
  ASSERT_EQ(world().queued(), 0u);
  std::swap(plane, sleeper);  // it wakes, and to it the actor is SUSPENDED
  awake = true;
  StartResume("a");
  EXPECT_DEATH(Run(), testing::AllOf(testing::HasSubstr("changed by somebody else"),
                                     testing::Not(testing::HasSubstr("EFFECT SENT"))));
  std::swap(plane, sleeper);
  EXPECT_EQ(world().calls["StartActor"], 1);
  EXPECT_EQ(State("a"), ateapi::ACTOR_STATE_RUNNING);
  plane.reset();
  sleeper.reset();
}

// B18: the store takes no writes for a minute; nothing crashes, nothing is stuck.
TEST_F(CommitCrash, B18_StoreDownForAMinute) {
  struct Down : CutStore {
    using CutStore::CutStore;
    Status Commit(const Batch& batch) override {
      if (down) return Fail(reasons::kStoreUnavailable, "disk full");
      return CutStore::Commit(batch);
    }
    bool down = false;
  };
  std::unique_ptr<Down> flaky;
  decorate = [&](Store* store) {
    flaky = std::make_unique<Down>(store);
    return flaky.get();
  };
  Reset();
  MakeAll();
  for (const char* name : {"b", "c"}) ASSERT_OK(MakeActor(name));
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartResume("b")));
  auto pause = StartPause("a");
  plane->RunReady();
  flaky->down = true;
  auto suspend = StartSuspend("b");
  auto resume = StartResume("c");
  RunFor(std::chrono::minutes(1));
  EXPECT_FALSE(resume->has_value());
  flaky->down = false;
  RunFor(std::chrono::minutes(1));
  for (bool answered : {pause->has_value(), suspend->has_value(), resume->has_value()}) {
    EXPECT_TRUE(answered);
  }
  EXPECT_EQ(State("a"), ateapi::ACTOR_STATE_PAUSED);
  EXPECT_EQ(State("b"), ateapi::ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(State("c"), ateapi::ACTOR_STATE_RUNNING);
  CheckRules();
  plane.reset();
}

}  // namespace
}  // namespace torpor::control
