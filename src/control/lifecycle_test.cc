// Lifecycle verbs through the whole control plane against the fake node.

#include "control/testing/plane_test_base.h"

namespace torpor::control {
namespace {

using ateapi::ACTOR_STATE_CRASHED;
using ateapi::ACTOR_STATE_PAUSED;
using ateapi::ACTOR_STATE_PAUSING;
using ateapi::ACTOR_STATE_RESUMING;
using ateapi::ACTOR_STATE_RUNNING;
using ateapi::ACTOR_STATE_SUSPENDED;
using ateapi::ACTOR_STATE_SUSPENDING;

class Lifecycle : public PlaneTest {};

TEST_F(Lifecycle, ResumePauseResumeSuspendResumeKeepsTheState) {
  MakeAll();
  ASSERT_OK_AND_ASSIGN(auto resumed, Await(StartResume("a")));
  EXPECT_TRUE(resumed.resumed());
  EXPECT_EQ(resumed.actor().status().state(), ACTOR_STATE_RUNNING);
  EXPECT_EQ(resumed.actor().status().worker_assignment().address(), "unix:/run/door.sock");
  EXPECT_EQ(resumed.generation(), 1);
  world().sandboxes[Uid("a")].value = 41;

  ASSERT_OK_AND_ASSIGN(auto paused, Await(StartPause("a")));
  EXPECT_EQ(paused.actor().status().state(), ACTOR_STATE_PAUSED);
  EXPECT_EQ(paused.generation(), 2);
  EXPECT_FALSE(paused.actor().status().has_worker_assignment());
  EXPECT_EQ(paused.actor().status().assigned_node(), "node-1");
  EXPECT_FALSE(paused.actor().status().local_snapshot().snapshot_name().empty());

  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 41);
  world().sandboxes[Uid("a")].value = 42;

  ASSERT_OK_AND_ASSIGN(auto suspended, Await(StartSuspend("a")));
  EXPECT_EQ(suspended.actor().status().state(), ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(suspended.generation(), 4);
  EXPECT_FALSE(suspended.actor().status().external_snapshot().snapshot_uri().empty());
  EXPECT_EQ(world().local_snapshots[Uid("a")].size(), 1u) << "the newest stays as a cache";
  EXPECT_EQ(world().objects.size(), 1u);

  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 42);
  EXPECT_TRUE(world().problems.empty()) << world().problems.front();
}

TEST_F(Lifecycle, ResumeOfRunningIsOneRead) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  int64_t version = Get("a").metadata().version();
  auto slot = StartResume("a");
  ASSERT_TRUE(slot->has_value()) << "answered at once";
  EXPECT_FALSE((**slot)->resumed());
  Run();
  EXPECT_EQ(Get("a").metadata().version(), version);
}

TEST_F(Lifecycle, AlreadyThereIsSuccess) {
  MakeAll();
  EXPECT_OK(Await(StartSuspend("a")));
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartPause("a")));
  EXPECT_OK(Await(StartPause("a")));
  EXPECT_THAT(Await(StartRevert("a")), IsOk());
  EXPECT_THAT(Await(StartRevert("a")), HasReason(Code::kFailedPrecondition, "WRONG_STATE"));
}

TEST_F(Lifecycle, UnknownActorAndReservedAtespace) {
  MakeAll();
  EXPECT_THAT(Await(StartPause("b")), HasReason(Code::kNotFound, "ACTOR_NOT_FOUND"));
  EXPECT_THAT(Await(StartResume("b")), HasReason(Code::kNotFound, "ACTOR_NOT_FOUND"));
  auto slot = MakeSlot<ateapi::PauseActorResponse>();
  ateapi::PauseActorRequest request;
  *request.mutable_actor() = Ref("x", "ate-golden");
  plane->PauseActor(request, {}, Into(slot));
  EXPECT_THAT(Await(slot), HasReason(Code::kPermissionDenied, "RESERVED_ATESPACE"));
}

TEST_F(Lifecycle, CallersJoinAndOthersAreBusy) {
  MakeAll();
  auto first = StartResume("a");
  auto second = StartResume("a");
  plane->RunReady();
  EXPECT_EQ(State("a"), ACTOR_STATE_RESUMING);
  auto pause = StartPause("a");
  plane->RunReady();
  ASSERT_TRUE(pause->has_value());
  EXPECT_THAT(**pause, HasReason(Code::kAborted, "OPERATION_IN_PROGRESS"));
  EXPECT_EQ(RetryAfterMs((**pause).status()), 250);
  ASSERT_OK(Await(first));
  ASSERT_OK(Await(second));
  EXPECT_EQ((**first)->op_id(), (**second)->op_id());
  EXPECT_EQ(world().calls["StartActor"], 1);
}

TEST_F(Lifecycle, ResumeDuringPausingWaitsAndThenResumes) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  auto pause = StartPause("a");
  plane->RunReady();
  ASSERT_EQ(State("a"), ACTOR_STATE_PAUSING);
  std::vector<Slot<ateapi::ResumeActorResponse>> resumes;
  for (int i = 0; i < 20; ++i) resumes.push_back(StartResume("a"));
  ASSERT_OK(Await(pause));
  EXPECT_EQ((**pause)->actor().status().state(), ACTOR_STATE_PAUSED);
  for (auto& slot : resumes) EXPECT_OK(Await(slot));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_EQ(world().calls["StartActor"], 2) << "one restore for all";
}

class LifecycleUpload : public Lifecycle, public ::testing::WithParamInterface<bool> {};

TEST_P(LifecycleUpload, ResumeUsesTheLocalGeneration) {
  const bool upload_first = GetParam();
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  world().sandboxes[Uid("a")].value = 7;
  auto suspend = StartSuspend("a");
  plane->RunReady();
  ASSERT_EQ(State("a"), ACTOR_STATE_SUSPENDING);
  auto early = StartResume("a");  // during the checkpoint: waits
  plane->RunReady();
  EXPECT_FALSE(early->has_value());
  world().RunAt(0);   // the capture
  plane->RunReady();  // upload begins, and the waiting resume overtakes it
  EXPECT_EQ(State("a"), ACTOR_STATE_RESUMING);
  ASSERT_TRUE(suspend->has_value());
  EXPECT_THAT(**suspend, HasReason(Code::kAborted, "SUPERSEDED"));
  ASSERT_EQ(world().queued(), 2u);
  world().RunAt(upload_first ? 0 : 1);
  Run();
  ASSERT_TRUE(early->has_value());
  EXPECT_OK(**early);
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 7);
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  // It completes in the background, also when the node saw the newer generation first.
  ASSERT_EQ(world().objects.size(), 1u);
  EXPECT_EQ(Get("a").status().external_snapshot().snapshot_uri(), world().objects.begin()->first);
  EXPECT_EQ(Get("a").status().in_progress_snapshot_uri(), "");
  EXPECT_TRUE(world().problems.empty());
}

INSTANTIATE_TEST_SUITE_P(UploadFirst, LifecycleUpload, ::testing::Bool());

TEST_F(Lifecycle, SuspendOfPausedUploadsWithoutWaking) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartPause("a")));
  int64_t generation = Get("a").status().generation();
  ASSERT_OK_AND_ASSIGN(auto suspended, Await(StartSuspend("a")));
  EXPECT_EQ(suspended.actor().status().state(), ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(suspended.actor().status().generation(), generation);
  EXPECT_EQ(world().calls["StartActor"], 1);
}

TEST_F(Lifecycle, FailedPauseLeavesTheActorRunning) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  world().FailNext("CaptureActor", Fail(reasons::kDiskFull, "no room in local-checkpoint"));
  EXPECT_THAT(Await(StartPause("a")), HasReason(Code::kResourceExhausted, "DISK_FULL"));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_EQ(Get("a").status().last_error().reason(), "DISK_FULL");
  EXPECT_EQ(Get("a").status().in_progress_local_snapshot_name(), "");
  EXPECT_OK(Await(StartPause("a")));
}

TEST_F(Lifecycle, CaptureThatKillsTheGuestCrashesAndRevertBringsItBack) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  world().sandboxes[Uid("a")].value = 5;
  ASSERT_OK(Await(StartSuspend("a")));
  ASSERT_OK(Await(StartResume("a")));
  world().capture_kills = true;
  world().FailNext("CaptureActor", Fail(reasons::kInvalidCheckpointResult, "files are missing"));
  EXPECT_THAT(Await(StartPause("a")), HasReason(Code::kInternal, "INVALID_CHECKPOINT_RESULT"));
  EXPECT_EQ(State("a"), ACTOR_STATE_CRASHED);
  EXPECT_EQ(Get("a").status().crash().durable_generation(), 2);
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kFailedPrecondition, "ACTOR_CRASHED"));
  ASSERT_OK_AND_ASSIGN(auto reverted, Await(StartRevert("a")));
  EXPECT_EQ(reverted.actor().status().state(), ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(reverted.generation(), 2);
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 5);
}

TEST_F(Lifecycle, FailedResumeGoesBackWhereItCameFrom) {
  MakeAll();
  world().FailNext("StartActor", Fail(reasons::kImageRegistryUnavailable, "registry is down"));
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kUnavailable, "IMAGE_REGISTRY_UNAVAILABLE"));
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartPause("a")));
  world().FailNext("StartActor", Fail(reasons::kVolumeBusy, "still mounted"));
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kUnavailable, "VOLUME_BUSY"));
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
  world().FailNext("StartActor", Fail(reasons::kWorkloadNotReady, "probe said 500"));
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kInternal, "WORKLOAD_NOT_READY"));
  EXPECT_EQ(State("a"), ACTOR_STATE_CRASHED);
}

TEST_F(Lifecycle, A3_UploadFailureIsLoss) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  world().sandboxes[Uid("a")].value = 9;
  world().FailNext("UploadSnapshot", Fail(reasons::kObjectStorageUnavailable, "503"), 1000);
  auto slot = MakeSlot<ateapi::SuspendActorResponse>();
  ateapi::SuspendActorRequest request;
  *request.mutable_actor() = Ref("a");
  plane->SuspendActor(request, {clock.Now() + std::chrono::minutes(2)}, Into(slot));
  RunFor(std::chrono::minutes(10));
  ASSERT_TRUE(slot->has_value());
  EXPECT_EQ((**slot).status().code(), Code::kDeadlineExceeded);
  EXPECT_EQ(MetadataOf((**slot).status())["cause"], "OBJECT_STORAGE_UNAVAILABLE");
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDING);
  EXPECT_FALSE(Get("a").status().has_worker_assignment());
  EXPECT_GT(world().calls["UploadSnapshot"], 5);
  EXPECT_LT(world().calls["UploadSnapshot"], 30) << "with backoff";
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 9);
  StartSuspend("a");
  RunFor(std::chrono::minutes(10));
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDING);
  world().HealAll();
  RunFor(std::chrono::minutes(1));
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED) << "by itself, once the store is back";
  EXPECT_EQ(world().objects.count(Get("a").status().external_snapshot().snapshot_uri()), 1u);
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 9);
}

TEST_F(Lifecycle, PermanentUploadErrorIsToldAtOnce) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  world().FailNext("UploadSnapshot", Fail(reasons::kStoreDenied, "bucket is not allowed"), 1000);
  EXPECT_THAT(Await(StartSuspend("a")), HasReason(Code::kPermissionDenied, "STORE_DENIED"));
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDING);
  world().HealAll();
  RunFor(std::chrono::minutes(2));
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
}

TEST_F(Lifecycle, DeleteRemovesEverything) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartSuspend("a")));
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_THAT(Await(StartDelete("a")), HasReason(Code::kFailedPrecondition, "WRONG_STATE"));
  ASSERT_OK(Await(StartDelete("a", true)));
  EXPECT_TRUE(world().sandboxes.empty());
  EXPECT_TRUE(world().objects.empty());
  ateapi::GetActorRequest get;
  *get.mutable_actor() = Ref("a");
  EXPECT_THAT(plane->GetActor(get), HasReason(Code::kNotFound, "ACTOR_NOT_FOUND"));
}

TEST_F(Lifecycle, DeleteSupersedesAnUploadAndLeavesNoObject) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  auto suspend = StartSuspend("a");
  plane->RunReady();
  world().RunAt(0);
  plane->RunReady();
  ASSERT_EQ(world().queued(), 1u);  // the upload
  auto deleted = StartDelete("a", true);
  plane->RunReady();
  ASSERT_TRUE(suspend->has_value());
  EXPECT_THAT(**suspend, HasReason(Code::kAborted, "SUPERSEDED"));
  EXPECT_OK(Await(deleted));
  EXPECT_TRUE(world().objects.empty()) << "the upload wrote after the delete";
}

TEST_F(Lifecycle, LostReplyIsAskedFor) {
  MakeAll();
  auto slot = StartResume("a");
  plane->RunReady();
  world().RunAt(0, FakeWorld::Fate::kLoseReply);
  RunFor(std::chrono::seconds(2));
  ASSERT_TRUE(slot->has_value());
  EXPECT_OK(**slot);
  EXPECT_EQ(world().calls["StartActor"], 1);
}

TEST_F(Lifecycle, LostRequestIsSentAgain) {
  MakeAll();
  auto slot = StartResume("a");
  plane->RunReady();
  world().RunAt(0, FakeWorld::Fate::kLoseRequest);
  RunFor(std::chrono::seconds(2));
  ASSERT_TRUE(slot->has_value());
  EXPECT_OK(**slot);
}

TEST_F(Lifecycle, RestartContinuesEveryOperation) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  world().sandboxes[Uid("a")].value = 3;
  auto suspend = StartSuspend("a");
  plane->RunReady();
  Restart();  // before the node has the request
  ASSERT_TRUE(suspend->has_value());
  EXPECT_THAT(**suspend, HasReason(Code::kUnavailable, "SHUTTING_DOWN"));
  world().RunAt(0);  // the old request arrives after all
  RunFor(std::chrono::seconds(5));
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(world().objects.begin()->second, 3);
  EXPECT_TRUE(world().problems.empty());
}

TEST_F(Lifecycle, NoCapacityTellsWhyAndCanBeWaitedFor) {
  MakeAtespace();
  ASSERT_OK(MakeTemplate(Template()));
  ASSERT_OK(MakeActor("a"));
  RunFor(std::chrono::seconds(21));  // a node that runs would have reported by now
  auto status = Await(StartResume("a")).status();
  EXPECT_THAT(status, HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
  EXPECT_THAT(status, MessageHas("no worker is registered"));
  auto waiting = StartResume("a", std::chrono::seconds(30));
  Run();
  EXPECT_FALSE(waiting->has_value());
  Register();
  EXPECT_OK(Await(waiting));
}

TEST_F(Lifecycle, PressurePausesTheLongestIdle) {
  MakeAtespace();
  ASSERT_OK(MakeTemplate(Template()));
  ASSERT_OK(MakeActor("a"));
  ASSERT_OK(MakeActor("b"));
  auto registered = plane->RegisterNode(world().Registration(int64_t{600} << 20));  // room for one
  ASSERT_OK(registered);
  lease_id = registered->lease_id();
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_THAT(Await(StartResume("b")), HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
  RunFor(std::chrono::seconds(11));
  EXPECT_OK(Await(StartResume("b")));
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
}

TEST_F(Lifecycle, IdlePolicyPausesThenSuspends) {
  MakeAtespace();
  ateapi::ActorTemplate tmpl = Template();
  tmpl.mutable_idle_policy()->mutable_pause_after()->set_seconds(30);
  tmpl.mutable_idle_policy()->mutable_suspend_after()->set_seconds(120);
  ASSERT_OK(MakeTemplate(tmpl));
  Register();
  ASSERT_OK(MakeActor("a"));
  ASSERT_OK(Await(StartResume("a")));
  RunFor(std::chrono::seconds(25));
  torpor::v1::ReportActivityRequest activity;
  auto* report = activity.add_activities();
  report->set_actor_uid(Uid("a"));
  *report->mutable_last_active_time() = ToProto(clock.WallNow());
  ASSERT_OK(plane->ReportActivity(activity));
  RunFor(std::chrono::seconds(25));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING) << "it was used";
  RunFor(std::chrono::seconds(10));
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
  RunFor(std::chrono::seconds(90));
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
}

TEST_F(Lifecycle, ExitCrashesAndPolicyReverts) {
  MakeAtespace();
  ateapi::ActorTemplate tmpl = Template();
  tmpl.mutable_crash_policy()->set_on_crash(torpor::v1::ON_CRASH_REVERT);
  tmpl.mutable_crash_policy()->set_max_reverts(1);
  ASSERT_OK(MakeTemplate(tmpl));
  Register();
  ASSERT_OK(MakeActor("a"));
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartSuspend("a")));
  for (int round = 0; round < 2; ++round) {
    ASSERT_OK(Await(StartResume("a")));
    torpor::v1::ReportActorRequest report;
    report.set_lease_id(lease_id);
    report.mutable_exited()->set_event_id("exit" + std::to_string(round));
    report.mutable_exited()->set_actor_uid(Uid("a"));
    report.mutable_exited()->set_generation(Get("a").status().generation());
    report.mutable_exited()->set_container("main");
    report.mutable_exited()->set_exit_code(3);
    ASSERT_OK(plane->ReportActor(report));
    ASSERT_OK(plane->ReportActor(report));  // repeated
    Run();
    EXPECT_EQ(State("a"), round == 0 ? ACTOR_STATE_SUSPENDED : ACTOR_STATE_CRASHED);
  }
  EXPECT_EQ(Get("a").status().crash().reason(), "WORKLOAD_EXITED");
  EXPECT_TRUE(world().sandboxes.empty());
}

TEST_F(Lifecycle, WaitActorAndEventsAndReports) {
  MakeAll();
  auto waited = MakeSlot<torpor::v1::WaitActorResponse>();
  torpor::v1::WaitActorRequest wait;
  *wait.mutable_actor() = Ref("a");
  wait.add_states(ACTOR_STATE_PAUSED);
  plane->WaitActor(wait, {}, Into(waited));
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_FALSE(waited->has_value());
  ASSERT_OK(Await(StartPause("a")));
  ASSERT_TRUE(waited->has_value());
  EXPECT_OK(**waited);

  torpor::v1::ListEventsRequest events;
  *events.mutable_actor() = Ref("a");
  events.set_page_size(3);
  ASSERT_OK_AND_ASSIGN(auto page, plane->ListEvents(events));
  ASSERT_EQ(page.events_size(), 3);
  EXPECT_EQ(page.events(0).to_state(), ACTOR_STATE_PAUSED);
  events.set_page_token(page.next_page_token());
  ASSERT_OK_AND_ASSIGN(auto rest, plane->ListEvents(events));
  EXPECT_EQ(rest.events_size(), 1);
  EXPECT_EQ(rest.next_page_token(), "");

  torpor::v1::ExplainActorRequest explain;
  *explain.mutable_actor() = Ref("a");
  ASSERT_OK_AND_ASSIGN(auto report, plane->ExplainActor(explain));
  ASSERT_EQ(report.reports_size(), 1);
  EXPECT_EQ(report.reports(0).phases(3).name(), "boot");
  EXPECT_EQ(report.reports(0).choices_size(), 2);
}

TEST_F(Lifecycle, RebootCrashesRunningAndKeepsPaused) {
  MakeAll();
  ASSERT_OK(MakeActor("b"));
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartResume("b")));
  ASSERT_OK(Await(StartPause("b")));
  world().Reboot();
  Register();
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_CRASHED);
  EXPECT_EQ(Get("a").status().crash().reason(), "NODE_LOST");
  EXPECT_EQ(State("b"), ACTOR_STATE_PAUSED);
  EXPECT_OK(Await(StartResume("b")));
}

TEST_F(Lifecycle, LostLocalSnapshotOfPausedActorIsACrash) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartPause("a")));
  world().local_snapshots.clear();
  Register();
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_CRASHED);
  EXPECT_EQ(Get("a").status().crash().reason(), "LOCAL_SNAPSHOT_GONE");
}

// The only newest copy is lost, whoever notices it first: by its policy the actor goes back to what
// is durable, and an event names what was given up.
TEST_F(Lifecycle, C2_PinnedToALostSnapshot) {
  for (bool node_tells : {true, false}) {
    SCOPED_TRACE(node_tells);
    Reset();
    MakeAtespace();
    ateapi::ActorTemplate tmpl = Template();
    tmpl.mutable_crash_policy()->set_on_crash(torpor::v1::ON_CRASH_REVERT);
    ASSERT_OK(MakeTemplate(tmpl));
    Register();
    ASSERT_OK(MakeActor("a"));
    ASSERT_OK(Await(StartResume("a")));
    world().sandboxes[Uid("a")].value = 5;
    ASSERT_OK(Await(StartSuspend("a")));
    const int64_t durable = Get("a").status().last_snapshot_generation();
    ASSERT_OK(Await(StartResume("a")));
    world().sandboxes[Uid("a")].value = 6;
    ASSERT_OK(Await(StartPause("a")));
    const int64_t lost = Get("a").status().last_snapshot_generation();
    ASSERT_GT(lost, durable);
    world().local_snapshots.clear();
    if (node_tells) {
      Register();
    } else {
      EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kDataLoss, "LOCAL_SNAPSHOT_GONE"));
      world().problems.clear();  // the node noticed it, as it should
    }
    Run();
    EXPECT_EQ(Get("a").status().last_snapshot_generation(), durable);
    ASSERT_OK(Await(StartResume("a")));
    EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
    EXPECT_EQ(world().sandboxes[Uid("a")].value, 5);
    torpor::v1::ListEventsRequest list;
    *list.mutable_actor() = Ref("a");
    ASSERT_OK_AND_ASSIGN(auto events, plane->ListEvents(list));
    const std::string named = "generation " + std::to_string(lost) + " ";
    EXPECT_TRUE(std::any_of(events.events().begin(), events.events().end(), [&](const auto& e) {
      return e.message().find(named) == 0;
    })) << events.DebugString();
    CheckRules();
  }
}

TEST_F(Lifecycle, NodeIsToldToStopWhatIsNotItsOwn) {
  MakeAll();
  world().sandboxes["99999999-9999-4999-8999-999999999999"] = {1, 0};
  auto response = plane->RegisterNode(world().Registration());
  ASSERT_OK(response);
  ASSERT_EQ(response->stop_actor_uids_size(), 1);
  EXPECT_EQ(response->stop_actor_uids(0), "99999999-9999-4999-8999-999999999999");
}

}  // namespace
}  // namespace torpor::control
