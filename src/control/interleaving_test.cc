// Every order of the events that can meet: calls, answers of the node, exits, leases, timers.

#include <algorithm>

#include "control/testing/forwarding_store.h"
#include "control/testing/interleaving.h"
#include "torpor/v1/record.pb.h"

namespace torpor::control {
namespace {

using ateapi::ACTOR_STATE_CRASHED;
using ateapi::ACTOR_STATE_PAUSED;
using ateapi::ACTOR_STATE_PAUSING;
using ateapi::ACTOR_STATE_RUNNING;
using ateapi::ACTOR_STATE_SUSPENDED;
using ateapi::ACTOR_STATE_SUSPENDING;

// ---- D2: resume during a pause ----

TEST_F(Interleaving, D2_ResumeWhilePausing) {
  std::vector<Slot<ateapi::ResumeActorResponse>> resumes;
  Slot<ateapi::PauseActorResponse> pause;
  EveryOrder(
      "nnnnrrrt",
      [&] {
        resumes.clear();
        RunsWith(7);
        pause = StartPause("a");
        plane->RunReady();
        ASSERT_EQ(State("a"), ACTOR_STATE_PAUSING);
      },
      [&](char letter) {
        if (letter == 'n') Step();
        if (letter == 't') Time();
        if (letter == 'r') resumes.push_back(StartResume("a"));
      },
      [&] {
        RunFor(std::chrono::seconds(20));
        ASSERT_TRUE(pause->has_value());
        EXPECT_OK(**pause);
        for (const auto& resume : resumes) {
          ASSERT_TRUE(resume->has_value());
          ASSERT_OK(**resume);
          EXPECT_EQ((**resume)->actor().status().state(), ACTOR_STATE_RUNNING);
        }
        EXPECT_EQ(world().calls["StartActor"], 2) << "one restore for all";
        EXPECT_EQ(world().sandboxes[uid].value, 7);
      });
}

TEST_F(Interleaving, D2_TwentyResumesWhilePausing) {
  for (int early = 0; early <= 20; ++early) {
    Reset();
    MakeAll();
    RunsWith(7);
    auto pause = StartPause("a");
    plane->RunReady();
    std::vector<Slot<ateapi::ResumeActorResponse>> resumes;
    for (int i = 0; i < early; ++i) resumes.push_back(StartResume("a"));
    plane->RunReady();
    Step();
    for (int i = early; i < 20; ++i) resumes.push_back(StartResume("a"));
    for (const auto& resume : resumes) EXPECT_OK(Await(resume));
    EXPECT_OK(Await(pause));
    EXPECT_EQ(world().calls["StartActor"], 2);
  }
}

// ---- D3: resume during the upload of a suspend ----

TEST_F(Interleaving, D3_SuspendNotInterruptible) {
  Slot<ateapi::SuspendActorResponse> suspend;
  Slot<ateapi::ResumeActorResponse> resume;
  for (bool outage : {false, true}) {
    EveryOrder(
        "lnnnrt",
        [&] {
          RunsWithADurableGeneration();
          if (outage) {
            world().FailNext("UploadSnapshot", Fail(reasons::kObjectStorageUnavailable, "503"), 9);
          }
          suspend = StartSuspend("a");
          plane->RunReady();
        },
        [&](char letter) {
          if (letter == 'n') Step();
          if (letter == 'l') Step(Fate::kLoseReply);
          if (letter == 't') Time();
          if (letter == 'r') resume = StartResume("a");
        },
        [&] {
          RunFor(std::chrono::minutes(3));
          ASSERT_TRUE(resume->has_value());
          ASSERT_OK(**resume);
          ASSERT_TRUE(suspend->has_value());
          if (!(*suspend)->ok()) {
            EXPECT_THAT(**suspend, HasReason(Code::kAborted, "SUPERSEDED"));
          }
          EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
          EXPECT_EQ(world().sandboxes[uid].value, 7);
          // Each object is what was captured for its own generation, and none is left over.
          torpor::v1::ListGenerationsRequest list;
          *list.mutable_actor() = Ref("a");
          ASSERT_OK_AND_ASSIGN(auto generations, plane->ListGenerations(list));
          size_t named = 0;
          for (const auto& generation : generations.generations()) {
            for (const auto& storage : generation.storages()) {
              EXPECT_EQ(storage.status(), torpor::v1::STORAGE_STATUS_COMPLETED);
              if (storage.durability() != torpor::v1::DURABILITY_DURABLE) continue;
              ++named;
              EXPECT_EQ(world().objects[storage.uri()], generation.generation() == 2 ? 5 : 7);
            }
          }
          EXPECT_EQ(world().objects.size(), named);
        });
  }
}

// ---- D4: delete at each step of a suspend ----

TEST_F(Interleaving, D4_DeleteDuringSuspend) {
  Slot<ateapi::Actor> deleted;
  EveryOrder(
      "dlnnnt",
      [&] {
        RunsWithADurableGeneration();
        StartSuspend("a");
        plane->RunReady();
        ASSERT_EQ(State("a"), ACTOR_STATE_SUSPENDING);
      },
      [&](char letter) {
        if (letter == 'n') Step();
        if (letter == 'l') Step(Fate::kLoseReply);
        if (letter == 't') Time();
        if (letter == 'd') deleted = StartDelete("a", true);
      },
      [&] {
        RunFor(std::chrono::minutes(3));
        ASSERT_TRUE(deleted->has_value());
        EXPECT_OK(**deleted);
        EXPECT_FALSE(Exists());
        EXPECT_TRUE(world().objects.empty()) << "written after the delete";
        EXPECT_TRUE(world().sandboxes.empty());
        EXPECT_TRUE(world().local_snapshots[uid].empty());
        auto workers = plane->ListWorkers({});
        ASSERT_OK(workers);
        EXPECT_EQ(workers->workers(0).status().allocated().actors(), 0);
      });
}

// ---- D5, A2: the worker is lost at each step of a suspend ----

TEST_F(Interleaving, D5_WorkerLossDuringSuspend) {
  bool captured = false;
  EveryOrder(
      "hnnntg",
      [&] {
        RunsWithADurableGeneration();
        captured = false;
        StartSuspend("a");
        plane->RunReady();
      },
      [&](char letter) {
        if (letter == 'n') Step();
        if (letter == 't') Time();
        if (letter == 'g') ReRegister();
        if (letter == 'h') {
          captured = !world().captured[uid].empty() && world().captured[uid].size() == 2;
          world().RestartWorker();
        }
      },
      [&] {
        ReRegister();
        RunFor(std::chrono::minutes(2));
        if (captured) {
          EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
          EXPECT_EQ(ValueAfterWake(), 7);
        } else {
          EXPECT_EQ(State("a"), ACTOR_STATE_CRASHED);
          EXPECT_EQ(Get("a").status().crash().durable_generation(), 2);
          torpor::v1::ListGenerationsRequest list;
          *list.mutable_actor() = Ref("a");
          ASSERT_OK_AND_ASSIGN(auto generations, plane->ListGenerations(list));
          ASSERT_EQ(generations.generations_size(), 1) << "what was never written is named";
          EXPECT_EQ(generations.generations(0).generation(), 2);
          EXPECT_EQ(ValueAfterWake(), 5);
        }
      });
}

// ---- B10: the exit of a captured sandbox ----

TEST_F(Interleaving, B10_TeardownReadAsCrash) {
  for (bool suspend : {false, true}) {
    EveryOrder(
        "egoprt",
        [&] {
          RunsWith(7);
          if (suspend) {
            StartSuspend("a");
          } else {
            StartPause("a");
          }
          plane->RunReady();
          Step(Fate::kHoldReply);
        },
        [&](char letter) {
          if (letter == 'e') ReportExit(1);
          if (letter == 'g') ReRegister();
          if (letter == 'o') {  // the node reports the outcome by itself
            torpor::v1::ReportOperationRequest report;
            report.set_lease_id(lease_id);
            const auto registration = world().Registration();
            for (const auto& op : registration.inventory().operations()) {
              if (op.method() == "CaptureActor") *report.mutable_operation() = op;
            }
            (void)plane->ReportOperation(report).ok();
          }
          if (letter == 'p' && world().queued() > 0) world().RunAt(world().queued() - 1);
          if (letter == 'r') Step();
          if (letter == 't') Time();
        },
        [&] {
          RunFor(std::chrono::seconds(30));
          EXPECT_EQ(State("a"), suspend ? ACTOR_STATE_SUSPENDED : ACTOR_STATE_PAUSED);
          EXPECT_EQ(ValueAfterWake(), 7);
        });
  }
}

// ---- D6: what becomes of the guest when a capture fails ----

TEST_F(Interleaving, D6_GuestLeftFrozen) {
  struct Case {
    Status failure;
    bool kills;
    ateapi::ActorState want;
  };
  const std::vector<Case> kCases = {
      {Fail(reasons::kDiskFull, "no room"), false, ACTOR_STATE_RUNNING},
      {Fail(reasons::kActorBusy, "requests in flight"), false, ACTOR_STATE_RUNNING},
      {Fail(reasons::kDeadlineExceeded, "too slow"), false, ACTOR_STATE_RUNNING},
      {Fail(reasons::kInvalidCheckpointResult, "a file is missing"), true, ACTOR_STATE_CRASHED},
      {Fail(reasons::kRuntimeFailed, "the sandbox is gone"), true, ACTOR_STATE_CRASHED},
      {Fail(reasons::kActorNotFound, "no sandbox"), true, ACTOR_STATE_CRASHED},
  };
  for (const Case& c : kCases) {
    for (bool suspend : {false, true}) {
      SCOPED_TRACE(std::string(c.failure.message()));
      Reset();
      MakeAll();
      RunsWithADurableGeneration();
      world().capture_kills = c.kills;
      world().FailNext("CaptureActor", c.failure);
      suspend ? (void)StartSuspend("a") : (void)StartPause("a");
      RunFor(std::chrono::seconds(20));
      EXPECT_EQ(State("a"), c.want);
      CheckRules();
      EXPECT_EQ(ValueAfterWake(), c.want == ACTOR_STATE_RUNNING ? 7 : 5);
    }
  }
}

// ---- D9: an idle decision and a request ----

class IdleRace : public Interleaving {
 protected:
  void MakeIdleActor(Duration after = std::chrono::seconds(10)) {
    Reset();
    MakeAtespace();
    ateapi::ActorTemplate tmpl = Template();
    *tmpl.mutable_idle_policy()->mutable_pause_after() = ToProto(after);
    ASSERT_THAT(MakeTemplate(tmpl), IsOk());
    lease_id.clear();
    Register();
    ASSERT_THAT(MakeActor("a"), IsOk());
    RunsWith(7);
  }
  void ReportUse(int open = 0) {
    torpor::v1::ReportActivityRequest request;
    request.set_router_id("router-1");
    torpor::v1::Activity& activity = *request.add_activities();
    activity.set_actor_uid(uid);
    *activity.mutable_last_active_time() = ToProto(clock.WallNow());
    activity.set_open_streams(open);
    EXPECT_THAT(plane->ReportActivity(request), IsOk());
  }
};

TEST_F(IdleRace, D9_RequestAtEveryInterleaving) {
  std::string letters = "innnqu";
  std::sort(letters.begin(), letters.end());
  do {
    SCOPED_TRACE(letters);
    MakeIdleActor();
    RunFor(std::chrono::seconds(9));
    Slot<ateapi::ResumeActorResponse> resume;
    bool used = false;
    for (char letter : letters) {
      if (letter == 'i') Time(std::chrono::seconds(1));  // the limit is reached
      if (letter == 'n') Step();
      if (letter == 'u') ReportUse();
      if (letter == 'q') {
        resume = StartResume("a");
        used = true;
      }
      while (plane->RunReady()) {
      }
    }
    ASSERT_TRUE(used);
    Run();
    ASSERT_TRUE(resume->has_value());
    ASSERT_OK(**resume) << "the request has to be answered";
    EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
    EXPECT_EQ(world().sandboxes[uid].value, 7);
    EXPECT_EQ(Get("a").status().last_error().reason(), "");
    CheckRules();
    if (HasFailure()) return;
  } while (std::next_permutation(letters.begin(), letters.end()));
}

// While the decision is committed a request comes: the capture never leaves.
TEST_F(IdleRace, D9_UsedDuringTheCommit) {
  struct UsedAtCommit : ForwardingStore {
    using ForwardingStore::ForwardingStore;
    Status Commit(const Batch& batch) override {
      if (at_commit) at_commit();
      return ForwardingStore::Commit(batch);
    }
    std::function<void()> at_commit;
  };
  std::unique_ptr<UsedAtCommit> used;
  decorate = [&](Store* store) {
    used = std::make_unique<UsedAtCommit>(store);
    return used.get();
  };
  MakeIdleActor();
  RunFor(std::chrono::seconds(9));
  used->at_commit = [&] { ReportUse(); };
  Time(std::chrono::seconds(1));
  Run();
  EXPECT_EQ(world().calls["CaptureActor"], 0);
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_EQ(Get("a").status().last_error().reason(), "") << "nothing went wrong";
  used->at_commit = nullptr;
  RunFor(std::chrono::seconds(10));
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED) << "it is idle in the end";
  plane.reset();
}

TEST_F(IdleRace, D9_TheNodeFindsItBusy) {
  MakeIdleActor();
  world().FailNext("CaptureActor", Fail(reasons::kActorBusy, "requests in flight"));
  RunFor(std::chrono::seconds(12));
  EXPECT_EQ(world().calls["CaptureActor"], 1);
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_EQ(Get("a").status().last_error().reason(), "");
  RunFor(std::chrono::seconds(12));
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
}

// ---- D8: an actor suspends itself ----

TEST_F(IdleRace, D8_SelfSuspendDeadlock) {
  EveryOrder(
      "nnnpw", [&] { RunsWith(7); },
      [&](char letter) {
        if (letter == 'n') Step();
        if (letter == 'p') StartPause("a");
        if (letter == 'w') {
          torpor::v1::IdleWish wish;
          wish.set_actor_uid(uid);
          wish.set_generation(1);
          wish.set_verb(torpor::v1::VERB_SUSPEND);
          EXPECT_THAT(plane->WishIdle(wish), IsOk());
        }
      },
      [&] {
        Run();
        // The wish loses against a pause under way; a pause meets a suspend under way as busy.
        const bool wish_first = order.find('w') < order.find('p');
        EXPECT_EQ(State("a"), wish_first ? ACTOR_STATE_SUSPENDED : ACTOR_STATE_PAUSED) << order;
        EXPECT_EQ(world().calls["CaptureActor"], 1);
        EXPECT_EQ(ValueAfterWake(), 7);
      });
}

TEST_F(IdleRace, D8_AWishOfAnEarlierActivationIsNone) {
  MakeAll();
  RunsWith(7);
  torpor::v1::IdleWish wish;
  wish.set_actor_uid(uid);
  wish.set_generation(99);
  wish.set_verb(torpor::v1::VERB_PAUSE);
  ASSERT_OK(plane->WishIdle(wish));
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  wish.set_generation(1);
  ASSERT_OK(plane->WishIdle(wish));
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
  torpor::v1::ListGenerationsRequest list;
  *list.mutable_actor() = Ref("a");
  ASSERT_OK_AND_ASSIGN(auto generations, plane->ListGenerations(list));
  EXPECT_EQ(generations.generations(0).trigger(), "idle");
}

// ---- D10: a failure is shared by those who waited for it, and by nobody else ----

TEST_F(Interleaving, D10_SharedFailure) {
  MakeAll();
  world().FailNext("StartActor", Fail(reasons::kImageRegistryUnavailable, "registry is down"));
  std::vector<Slot<ateapi::ResumeActorResponse>> joined;
  for (int i = 0; i < 5; ++i) joined.push_back(StartResume("a"));
  plane->RunReady();
  clock.Advance(std::chrono::seconds(1));
  Step();
  while (plane->RunReady()) {
  }
  for (const auto& slot : joined) {
    ASSERT_TRUE(slot->has_value());
    EXPECT_THAT(**slot, HasReason(Code::kUnavailable, "IMAGE_REGISTRY_UNAVAILABLE"));
  }
  clock.Advance(std::chrono::milliseconds(10));
  EXPECT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().calls["StartActor"], 2);
}

// ---- B4, B19: each way to lose a worker leaves the same record ----

TEST_F(Interleaving, B19_DivergentCleanup) {
  std::vector<std::function<void()>> ways = {
      [&] { ReportExit(Get("a").status().generation()); },
      [&] {
        world().RestartWorker();
        ReRegister();
      },
      [&] {
        world().Reboot();
        ReRegister();
      },
      [&] {
        world().sandboxes.clear();
        ReRegister();
      },
  };
  std::string first;
  for (const auto& lose : ways) {
    Reset();
    lease_id.clear();
    MakeAll();
    RunsWithADurableGeneration();
    lose();
    Run();
    ASSERT_OK_AND_ASSIGN(auto row, store().Get(Kind::kActor, "demo/a"));
    torpor::v1::ActorRecord record;
    ASSERT_TRUE(record.ParseFromString(row->value));
    EXPECT_EQ(record.actor().status().state(), ACTOR_STATE_CRASHED);
    EXPECT_FALSE(record.has_binding());
    EXPECT_FALSE(record.has_operation());
    EXPECT_FALSE(record.has_pending_exit());
    // Cause and history may differ, nothing else.
    record.mutable_actor()->mutable_status()->mutable_crash()->clear_reason();
    record.mutable_actor()->mutable_status()->mutable_crash()->clear_message();
    record.clear_seen_event_ids();
    record.mutable_actor()->mutable_metadata()->Clear();
    record.clear_active_template_uid();
    for (auto& generation : *record.mutable_generations()) {
      for (auto& storage : *generation.mutable_generation()->mutable_storages()) {
        storage.clear_uri();
        storage.clear_snapshot_name();
      }
      generation.clear_manifest_sha256();
      generation.mutable_generation()->clear_actor_template_uid();
    }
    record.mutable_actor()->mutable_status()->clear_external_snapshot();
    if (first.empty()) first = record.DebugString();
    EXPECT_EQ(record.DebugString(), first);
    CheckRules();
  }
}

}  // namespace
}  // namespace torpor::control
