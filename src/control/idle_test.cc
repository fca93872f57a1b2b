// The idle policy with routers that report, fall silent and come back; wishes; pressure.

#include "control/testing/plane_test_base.h"
#include "torpor/v1/record.pb.h"

namespace torpor::control {
namespace {

using ateapi::ACTOR_STATE_PAUSED;
using ateapi::ACTOR_STATE_RUNNING;
using ateapi::ACTOR_STATE_SUSPENDED;
using std::chrono::minutes;
using std::chrono::seconds;

class Idle : public PlaneTest {
 protected:
  void MakeIdle(int pause_after, int suspend_after = 0) {
    MakeAtespace();
    ateapi::ActorTemplate tmpl = Template();
    tmpl.mutable_idle_policy()->mutable_pause_after()->set_seconds(pause_after);
    tmpl.mutable_idle_policy()->mutable_suspend_after()->set_seconds(suspend_after);
    tmpl.mutable_idle_policy()->mutable_max_keep_awake()->set_seconds(60);
    ASSERT_THAT(MakeTemplate(tmpl), IsOk());
    Register();
    ASSERT_THAT(MakeActor("a"), IsOk());
    ASSERT_THAT(Await(StartResume("a")), IsOk());
  }
  void Report(const std::string& router, int open, int64_t generation = 1) {
    torpor::v1::ReportActivityRequest request;
    request.set_router_id(router);
    torpor::v1::Activity& activity = *request.add_activities();
    activity.set_actor_uid(Uid("a"));
    activity.set_generation(generation);
    *activity.mutable_last_active_time() = ToProto(clock.WallNow());
    activity.set_open_streams(open);
    ASSERT_THAT(plane->ReportActivity(request), IsOk());
  }
  void Beat(const std::string& router) {
    torpor::v1::ReportActivityRequest request;
    request.set_router_id(router);
    ASSERT_THAT(plane->ReportActivity(request), IsOk());
  }
  // As a router that is there and has nothing new to tell.
  void RunWithBeats(Duration time, const std::string& router) {
    for (Duration done{}; done < time; done += seconds(1)) {
      Beat(router);
      RunFor(seconds(1));
    }
  }
};

TEST_F(Idle, I13_ThePauseComesOnTimeAfterAStream) {
  MakeIdle(5);
  Report("r", 1);
  for (int i = 0; i < 60; ++i) {
    Report("r", 1);
    RunFor(seconds(1));
  }
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING) << "an open stream is activity";
  Report("r", 0);
  RunWithBeats(seconds(4), "r");
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  RunWithBeats(seconds(1), "r");
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED) << "five seconds after the stream, not later";
}

TEST_F(Idle, ASilentRouterStopsTheClock) {
  MakeIdle(15);
  Report("r", 0);
  RunFor(seconds(100));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING) << "nobody knows whether it is used";
  Beat("r");
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED) << "the router is back and knows of no use";
}

TEST_F(Idle, TheReturnOfARouterTellsOfUse) {
  MakeIdle(15);
  Report("r", 0);
  RunFor(seconds(100));
  Report("r", 0);  // used just now
  RunWithBeats(seconds(14), "r");
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  RunWithBeats(seconds(1), "r");
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
}

TEST_F(Idle, ARouterThatIsGoneHoldsNothingForEver) {
  MakeIdle(15);
  Report("gone", 3);
  RunFor(settings.router_gone_after - seconds(5));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  RunFor(seconds(40));
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
}

TEST_F(Idle, AnotherRouterIsNoReason) {
  MakeIdle(15);
  Beat("silent");
  RunFor(seconds(16));
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED) << "a silent router that never served it";
}

TEST_F(Idle, ActivityOfRoutersIsMerged) {
  MakeIdle(5);
  Report("r1", 1);
  Report("r2", 0);
  for (int i = 0; i < 8; ++i) {
    Beat("r1");
    Beat("r2");
    RunFor(seconds(1));
  }
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING) << "one of them has it open";
}

TEST_F(Idle, AStreamOfAnEarlierActivationHoldsNothing) {
  MakeIdle(5);
  ASSERT_OK(Await(StartPause("a")));
  ASSERT_OK(Await(StartResume("a")));
  Report("r", 1, /*generation=*/1);
  RunWithBeats(seconds(5), "r");
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
}

TEST_F(Idle, KeepAwakeIsBoundedAndEnds) {
  MakeIdle(5);
  torpor::v1::KeepActorAwakeRequest keep;
  *keep.mutable_actor() = Ref("a");
  keep.mutable_duration()->set_seconds(3600);
  ASSERT_OK_AND_ASSIGN(auto kept, plane->KeepActorAwake(keep));
  EXPECT_EQ(FromProto(kept.awake_until()), clock.WallNow() + seconds(60)) << "the policy's bound";
  RunFor(seconds(60));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  RunFor(seconds(6));
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(plane->KeepActorAwake(keep));
  keep.mutable_duration()->set_seconds(0);
  ASSERT_OK(plane->KeepActorAwake(keep));
  RunFor(seconds(6));
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED) << "0 ends it";
  keep.mutable_actor()->set_name("none");
  EXPECT_THAT(plane->KeepActorAwake(keep), HasReason(Code::kNotFound, "ACTOR_NOT_FOUND"));
  keep.mutable_actor()->set_atespace("ate-golden");
  EXPECT_THAT(plane->KeepActorAwake(keep), HasReason(Code::kPermissionDenied, "RESERVED_ATESPACE"));
}

TEST_F(Idle, AnActorWishesToStayAwake) {
  MakeIdle(5);
  torpor::v1::AwakeWish wish;
  wish.set_actor_uid(Uid("a"));
  wish.set_generation(1);
  wish.mutable_duration()->set_seconds(30);
  ASSERT_OK(plane->WishAwake(wish));
  RunFor(seconds(30));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  RunFor(seconds(6));
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
}

TEST_F(Idle, PressureTakesTheLongestIdleAndNobodyInUse) {
  MakeAtespace();
  ASSERT_OK(MakeTemplate(Template()));
  for (const char* name : {"a", "b", "c"}) ASSERT_OK(MakeActor(name));
  auto registered = plane->RegisterNode(world().Registration(int64_t{1100} << 20));  // two fit
  ASSERT_OK(registered);
  lease_id = registered->lease_id();
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartResume("b")));
  RunFor(seconds(9));
  EXPECT_THAT(Await(StartResume("c")), HasReason(Code::kResourceExhausted, "NO_CAPACITY"))
      << "nobody is idle for ten seconds";
  RunFor(seconds(5));
  Report("r", 1);  // `a` is idle longest by its stamp, but in use
  for (int i = 0; i < 12; ++i) {
    Report("r", 1);
    RunFor(seconds(1));
  }
  EXPECT_OK(Await(StartResume("c")));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_EQ(State("b"), ACTOR_STATE_PAUSED);
}

TEST_F(Idle, SuspendAfterUploadsWithoutWaking) {
  MakeIdle(5, 20);
  RunFor(seconds(21));
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(world().calls["StartActor"], 1);
  EXPECT_EQ(world().calls["CaptureActor"], 1);
}

TEST_F(Idle, RevertByPolicyNamesWhatIsLost) {
  MakeAtespace();
  ateapi::ActorTemplate tmpl = Template();
  tmpl.mutable_crash_policy()->set_on_crash(torpor::v1::ON_CRASH_REVERT);
  ASSERT_OK(MakeTemplate(tmpl));
  Register();
  ASSERT_OK(MakeActor("a"));
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartSuspend("a")));
  ASSERT_OK(Await(StartResume("a")));
  torpor::v1::ReportActorRequest report;
  report.set_lease_id(lease_id);
  report.mutable_exited()->set_event_id("exit");
  report.mutable_exited()->set_actor_uid(Uid("a"));
  report.mutable_exited()->set_generation(Get("a").status().generation());
  report.mutable_exited()->set_exit_code(1);
  ASSERT_OK(plane->ReportActor(report));
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(Get("a").status().last_snapshot_generation(), 2);
  torpor::v1::ListEventsRequest list;
  *list.mutable_actor() = Ref("a");
  ASSERT_OK_AND_ASSIGN(auto events, plane->ListEvents(list));
  bool crashed = false;
  bool reverted = false;
  for (const auto& event : events.events()) {
    crashed |= event.type() == "ActorCrashed" && event.message().find("generation 3") == 0;
    reverted |=
        event.to_state() == ateapi::ACTOR_STATE_REVERTING && event.reason() == "crash_policy";
  }
  EXPECT_TRUE(crashed);
  EXPECT_TRUE(reverted);
}

TEST_F(Idle, FreezeAfterReachesTheWorker) {
  MakeAtespace();
  ateapi::ActorTemplate tmpl = Template();
  tmpl.mutable_idle_policy()->mutable_freeze_after()->set_seconds(2);
  ASSERT_OK(MakeTemplate(tmpl));
  Register();
  ASSERT_OK(MakeActor("a"));
  StartResume("a");
  plane->RunReady();
  ASSERT_OK_AND_ASSIGN(auto row, store().Get(Kind::kActor, "demo/a"));
  torpor::v1::ActorRecord record;
  ASSERT_TRUE(record.ParseFromString(row->value));
  EXPECT_EQ(record.operation().call().start().spec().freeze_after().seconds(), 2);
}

}  // namespace
}  // namespace torpor::control
