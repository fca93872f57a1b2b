// Resumes that find no place at first, or one that is gone when they get there.

#include "control/testing/plane_test_base.h"

namespace torpor::control {
namespace {

using ateapi::ACTOR_STATE_CRASHED;
using ateapi::ACTOR_STATE_PAUSED;
using ateapi::ACTOR_STATE_RESUMING;
using ateapi::ACTOR_STATE_RUNNING;
using ateapi::ACTOR_STATE_SUSPENDED;

constexpr Duration kPatience = std::chrono::seconds(21);  // more than Settings::registration_wait

class Placing : public PlaneTest {
 protected:
  torpor::v1::OperationReport LastReport() {
    torpor::v1::ExplainActorRequest explain;
    *explain.mutable_actor() = Ref("a");
    auto report = plane->ExplainActor(explain);
    EXPECT_THAT(report, IsOk());
    return report.ok() && report->reports_size() > 0 ? report->reports(0)
                                                     : torpor::v1::OperationReport();
  }
  // A second node with a worker, which has these CPU features.
  void RegisterOther(const std::vector<std::string>& features = {}) {
    torpor::v1::RegisterNodeRequest other = world().Registration();
    other.set_node_name("node-2");
    other.clear_inventory();
    torpor::v1::WorkerInfo& worker = *other.mutable_workers(0);
    worker.set_worker_uid("22222222-2222-4222-8222-222222222222");
    worker.set_name("gvisor-other");
    worker.mutable_cpu()->mutable_names()->Assign(features.begin(), features.end());
    ASSERT_OK(plane->RegisterNode(other));
  }
};

TEST_F(Placing, AfterARestartOfAllTheResumeWaitsForTheNode) {
  MakeAll();
  Restart();
  world().lease_id.clear();
  world().RestartWorker();  // the store still has the worker of the earlier run as ready
  auto resume = StartResume("a");
  Run();
  EXPECT_FALSE(resume->has_value());
  EXPECT_EQ(world().calls["StartActor"], 0) << "placed before the node has reported";
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
  Register();
  EXPECT_OK(Await(resume));
  EXPECT_EQ(world().calls["StartActor"], 1);
}

TEST_F(Placing, ANodeThatHoldsItsLeaseIsUsedAtOnce) {
  MakeAll();
  Restart();  // of the apiserver alone
  EXPECT_OK(Await(StartResume("a")));
}

TEST_F(Placing, ARenewalIsAReport) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartPause("a")));
  Restart();
  world().RunAt(0, FakeWorld::Fate::kLoseReply);  // the question for its lease
  auto resume = StartResume("a");
  Run();
  EXPECT_FALSE(resume->has_value());
  RenewLease();
  EXPECT_OK(Await(resume));
}

TEST_F(Placing, ANodeThatDoesNotComeBackIsNotWaitedForForEver) {
  MakeAll();
  Restart();
  lease_id.clear();  // nobody renews
  world().lease_id.clear();
  auto resume = StartResume("a");
  RunFor(kPatience);
  ASSERT_TRUE(resume->has_value());
  EXPECT_THAT(**resume, HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
  EXPECT_THAT((**resume).status(), MessageHas("has not reported"));
}

TEST_F(Placing, RightAfterTheFirstStartTheResumeWaitsForAWorker) {
  MakeAtespace();
  ASSERT_OK(MakeTemplate(Template()));
  ASSERT_OK(MakeActor("a"));
  auto resume = StartResume("a");
  Run();
  EXPECT_FALSE(resume->has_value());
  Register();
  EXPECT_OK(Await(resume));
}

TEST_F(Placing, AFullWorkerIsToldAtOnce) {
  MakeAtespace();
  ASSERT_OK(MakeTemplate(Template()));
  ASSERT_OK(MakeActor("a"));
  ASSERT_OK(plane->RegisterNode(world().Registration(int64_t{100} << 20)));
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
}

TEST_F(Placing, AWorkerThatIsNotReadyYetIsWaitedFor) {
  MakeAtespace();
  ASSERT_OK(MakeTemplate(Template()));
  ASSERT_OK(MakeActor("a"));
  torpor::v1::RegisterNodeRequest registration = world().Registration();
  torpor::v1::WorkerInfo& info = *registration.mutable_workers(0);
  // What an agent knows of a slot before its process has connected.
  torpor::v1::WorkerInfo unconnected;
  unconnected.set_worker_uid(info.worker_uid());
  unconnected.set_epoch(info.epoch());
  ASSERT_OK(plane->RegisterNode(registration));
  info = unconnected;
  ASSERT_OK(plane->RegisterNode(registration));
  auto resume = StartResume("a");
  Run();
  EXPECT_FALSE(resume->has_value());
  Register();
  EXPECT_OK(Await(resume));
}

TEST_F(Placing, AReplacedWorkerIsNoCrash) {
  MakeAll();
  world().RestartWorker();  // the node has not told it yet
  auto resume = StartResume("a");
  Run();
  EXPECT_FALSE(resume->has_value());
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(world().calls["StartActor"], 1) << "not placed there again";
  EXPECT_EQ(LastReport().error().reason(), "NODE_UNREACHABLE");
  Register();
  EXPECT_OK(Await(resume));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_FALSE(Get("a").status().has_last_error());
}

TEST_F(Placing, APausedActorKeepsItsStateWhenTheWorkerIsReplaced) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  world().sandboxes[Uid("a")].value = 6;
  ASSERT_OK(Await(StartPause("a")));
  world().RestartWorker();
  auto first = StartResume("a");
  auto second = StartResume("a");
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
  Register();
  EXPECT_OK(Await(first));
  EXPECT_OK(Await(second));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 6);
}

TEST_F(Placing, AnUnknownWorkerAndALostStartArePlacedAgain) {
  MakeAll();
  world().FailNext("StartActor", Fail(reasons::kWorkerNotFound, "no such worker"));
  auto resume = StartResume("a");
  Run();
  EXPECT_FALSE(resume->has_value());
  Register();
  ASSERT_OK(Await(resume));
  ASSERT_OK(Await(StartPause("a")));
  world().FailNext("StartActor", Fail(reasons::kNodeUnreachable, "the agent was started anew",
                                      {{"guest_ran", "false"}}));
  EXPECT_OK(Await(StartResume("a")));
}

TEST_F(Placing, AWorkerThatDiesDuringTheStartIsNoFailure) {
  MakeAll();
  Status lost = Error(Code::kUnavailable, "INTERNAL", "connection refused",
                      {{"guest_ran", "true"}});  // nobody knows
  world().FailNext("StartActor", lost);
  EXPECT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartPause("a")));
  world().FailNext("StartActor", Fail(reasons::kObjectStorageUnavailable, "503"));
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE"))
      << "what somebody has to repair is told";
}

TEST_F(Placing, ANodeThatRegistersBeforeTheStartReachesItIsNoCrash) {
  MakeAll();
  auto resume = StartResume("a");
  plane->RunReady();
  Register();  // the agent was started anew; what it has does not include the actor yet
  EXPECT_OK(Await(resume));
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
}

TEST_F(Placing, ASandboxThatIsGoneWhenItsStartIsToldIsACrash) {
  MakeAll();
  auto resume = StartResume("a");
  plane->RunReady();
  world().RunAt(0, FakeWorld::Fate::kLoseReply);
  world().sandboxes.clear();
  Register();  // the agent was away meanwhile
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_CRASHED);
}

TEST_F(Placing, AGuestThatRanIsNotStartedTwice) {
  MakeAll();
  world().FailNext("StartActor",
                   Fail(reasons::kWorkerRestarted, "too late", {{"guest_ran", "true"}}));
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kInternal, "WORKER_RESTARTED"));
  EXPECT_EQ(State("a"), ACTOR_STATE_CRASHED);
}

TEST_F(Placing, AStartThatFailsBeforeTheGuestRanGoesBack) {
  MakeAll();
  world().FailNext("StartActor",
                   Fail(reasons::kInvalidContainerConfig, "bad mount", {{"guest_ran", "false"}}));
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"));
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
  EXPECT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartPause("a")));
  world().FailNext("StartActor",
                   Fail(reasons::kRuntimeFailed, "restore failed", {{"guest_ran", "false"}}));
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_EQ(State("a"), ACTOR_STATE_PAUSED);
}

TEST_F(Placing, APlaceThatIsAlwaysGoneIsToldAtLast) {
  MakeAll();
  world().FailNext("StartActor", Fail(reasons::kNodeUnreachable, "gone", {{"guest_ran", "false"}}),
                   1000);
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kUnavailable, "NODE_UNREACHABLE"));
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
  EXPECT_LT(world().calls["StartActor"], 20);
}

TEST_F(Placing, AStoreFromABackupGoesAboveWhatTheNodeHasSeen) {
  MakeAll();
  world().highest[Uid("a")] = 50;
  ASSERT_OK_AND_ASSIGN(auto resumed, Await(StartResume("a")));
  EXPECT_EQ(resumed.generation(), 51);
}

TEST_F(Placing, WaitingForRoomDoesNotShortenTheResumeItself) {
  MakeAtespace();
  ASSERT_OK(MakeTemplate(Template()));
  ASSERT_OK(MakeActor("a"));
  RunFor(kPatience);
  auto resume = StartResume("a", std::chrono::seconds(30));
  RunFor(std::chrono::seconds(29));
  Register();
  plane->RunReady();
  ASSERT_EQ(State("a"), ACTOR_STATE_RESUMING);
  clock.Advance(std::chrono::seconds(5));  // the node takes its time
  while (plane->RunReady()) {
  }
  EXPECT_FALSE(resume->has_value()) << "answered although its deadline is far";
  EXPECT_OK(Await(resume));
}

TEST_F(Placing, NobodyIsPausedForAnActorThatFitsNowhere) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  RunFor(std::chrono::seconds(30));
  ateapi::ActorTemplate picky = Template("picky");
  (*picky.mutable_worker_selector()->mutable_match_labels())["disk"] = "fast";
  ASSERT_OK(MakeTemplate(picky));
  ASSERT_OK(MakeActor("b", "picky"));
  EXPECT_THAT(Await(StartResume("b")), HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
}

// One place, many who want it in the same moment.
TEST_F(Placing, C7_Overbooking) {
  MakeAtespace();
  ASSERT_OK(MakeTemplate(Template()));
  settings.pause_under_pressure = false;
  Restart();
  ASSERT_OK(plane->RegisterNode(world().Registration(int64_t{600} << 20)));
  std::vector<Slot<ateapi::ResumeActorResponse>> resumes;
  for (int i = 0; i < 100; ++i) {
    const std::string name = "a" + std::to_string(i);
    ASSERT_OK(MakeActor(name));
    resumes.push_back(StartResume(name));
  }
  Run();
  int bound = 0;
  for (const auto& resume : resumes) {
    ASSERT_TRUE(resume->has_value());
    if ((**resume).ok()) {
      ++bound;
    } else {
      EXPECT_THAT(**resume, HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
    }
  }
  EXPECT_EQ(bound, 1);
  EXPECT_EQ(world().sandboxes.size(), 1u);
  CheckRules();
}

// The record of the worker is gone; its capacity comes back with a renewal.
TEST_F(Placing, C9_CapacityLostOnRestart) {
  MakeAll();
  auto none = world().Registration();
  none.clear_workers();
  ASSERT_OK_AND_ASSIGN(auto registered, plane->RegisterNode(none));
  ASSERT_OK_AND_ASSIGN(auto workers, plane->ListWorkers({}));
  ASSERT_EQ(workers.workers_size(), 0);
  torpor::v1::RenewLeaseRequest renew;
  renew.set_lease_id(registered.lease_id());
  renew.set_boot_id(world().boot_id);
  *renew.mutable_workers() = world().Registration().workers();
  ASSERT_OK(plane->RenewLease(renew));
  EXPECT_OK(Await(StartResume("a")));
}

// A report that names another node changes nothing about where a snapshot is.
TEST_F(Placing, C1_EmptyNodeName) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  auto nameless = world().Registration();
  nameless.mutable_inventory()->clear_node_name();
  ASSERT_OK_AND_ASSIGN(auto registered, plane->RegisterNode(nameless));
  lease_id = registered.lease_id();
  ASSERT_OK(Await(StartPause("a")));
  EXPECT_EQ(Get("a").status().assigned_node(), "node-1");
  torpor::v1::ListGenerationsRequest list;
  *list.mutable_actor() = Ref("a");
  ASSERT_OK_AND_ASSIGN(auto generations, plane->ListGenerations(list));
  EXPECT_EQ(generations.generations(0).storages(0).node_name(), "node-1");
  CheckRules();
}

TEST_F(Placing, C8_AnAttemptThatFailedIsMadeElsewhere) {
  MakeAll();
  RegisterOther();
  auto node = [&] { return Get("a").status().worker_assignment().node_name(); };
  // One that the resume makes again by itself.
  world().FailNext("StartActor", Fail(reasons::kNodeUnreachable, "gone", {{"guest_ran", "false"}}));
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(node(), "node-2");
  ASSERT_OK(Await(StartSuspend("a")));
  // One that its caller makes again.
  world().FailNext("StartActor",
                   Fail(reasons::kRuntimeFailed, "restore failed", {{"guest_ran", "false"}}));
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kInternal, "RUNTIME_FAILED"));
  const std::string failed = LastReport().worker_name();
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_NE(LastReport().worker_name(), failed);
  const torpor::v1::OperationReport report = LastReport();
  for (const torpor::v1::Choice& choice : report.choices()) {
    if (choice.question() != "worker") continue;
    EXPECT_EQ(choice.rejected(0).reason(), "the last attempt failed there");
  }
  // What succeeded is forgotten.
  ASSERT_OK(Await(StartSuspend("a")));
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(LastReport().choices(1).reason(), "on the node that holds the snapshot");
}

TEST_F(Placing, C8_AnOldFailureIsNoReason) {
  MakeAll();
  world().FailNext("StartActor",
                   Fail(reasons::kRuntimeFailed, "restore failed", {{"guest_ran", "false"}}));
  EXPECT_THAT(Await(StartResume("a")), HasReason(Code::kInternal, "RUNTIME_FAILED"));
  RunFor(std::chrono::minutes(11));
  RegisterOther();
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(Get("a").status().worker_assignment().node_name(), "node-1");
}

class PlacingByCpu : public Placing {
 protected:
  // The first node's worker has room again, or not.
  void SetRoom(bool room) {
    ASSERT_OK_AND_ASSIGN(
        auto registered,
        plane->RegisterNode(world().Registration(room ? int64_t{8} << 30 : int64_t{100} << 20)));
    lease_id = registered.lease_id();
  }
  void MakeSuspended() {
    MakeAll();
    ASSERT_OK(Await(StartResume("a")));
    world().sandboxes[Uid("a")].value = 5;
    ASSERT_OK(Await(StartSuspend("a")));
  }
};

TEST_F(PlacingByCpu, C4_MemoryIsPlacedWhereItsFeaturesAre) {
  world().cpu_features = {"avx2", "avx512f", "sse2"};
  MakeSuspended();
  Restart();  // what the snapshot needs is kept
  RegisterOther({"avx2", "sse2"});
  SetRoom(false);
  auto refused = Await(StartResume("a"));
  EXPECT_THAT(refused, HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
  EXPECT_THAT(refused.status(), MessageHas("without CPU features of the snapshot (avx512f)"));
  EXPECT_EQ(MetadataOf(refused.status())["missing_cpu_features"], "avx512f");
  SetRoom(true);
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 5);
  bool told = false;
  const torpor::v1::OperationReport report = LastReport();
  for (const torpor::v1::Choice& choice : report.choices()) {
    if (choice.question() != "worker") continue;
    EXPECT_EQ(choice.answer(), "gvisor-0");
    ASSERT_EQ(choice.rejected_size(), 1);
    EXPECT_EQ(choice.rejected(0).reason(), "without CPU features of the snapshot: avx512f");
    told = true;
  }
  EXPECT_TRUE(told);
}

TEST_F(PlacingByCpu, C4_MoreFeaturesDo) {
  world().cpu_features = {"avx2", "sse2"};
  MakeSuspended();
  RegisterOther({"avx2", "avx512f", "sse2"});
  SetRoom(false);
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(Get("a").status().worker_assignment().node_name(), "node-2");
}

TEST_F(PlacingByCpu, C4_WhatIsNotKnownIsNoFilter) {
  MakeSuspended();  // as by a node that says nothing of its CPU
  RegisterOther({"sse2"});
  SetRoom(false);
  EXPECT_OK(Await(StartResume("a")));
  EXPECT_EQ(Get("a").status().worker_assignment().node_name(), "node-2");
}

TEST_F(PlacingByCpu, C4_VolumesGoAnywhere) {
  world().cpu_features = {"avx2", "avx512f", "sse2"};
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  auto slot = MakeSlot<ateapi::SuspendActorResponse>();
  ateapi::SuspendActorRequest suspend;
  *suspend.mutable_actor() = Ref("a");
  suspend.set_fidelity(torpor::v1::FIDELITY_VOLUMES);
  plane->SuspendActor(suspend, {}, Into(slot));
  ASSERT_OK(Await(slot));
  RegisterOther({"sse2"});
  SetRoom(false);
  EXPECT_OK(Await(StartResume("a")));
  EXPECT_EQ(Get("a").status().worker_assignment().node_name(), "node-2");
}

// Who leaves stops waiting, and nothing else.
TEST_F(Placing, B7_TeardownCutByCaller) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  auto left = MakeSlot<ateapi::SuspendActorResponse>();
  ateapi::SuspendActorRequest suspend;
  *suspend.mutable_actor() = Ref("a");
  plane->SuspendActor(suspend, {clock.Now() + std::chrono::milliseconds(10)}, Into(left));
  plane->RunReady();
  clock.Advance(std::chrono::milliseconds(20));
  while (plane->RunReady()) {
  }
  ASSERT_TRUE(left->has_value());
  EXPECT_THAT(**left, HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  EXPECT_NE(MetadataOf((**left).status())["op_id"], "");
  auto joins = StartSuspend("a");
  ASSERT_OK(Await(joins));
  EXPECT_EQ((**joins)->op_id(), MetadataOf((**left).status())["op_id"]);
  EXPECT_EQ(world().calls["CaptureActor"], 1);
}

}  // namespace
}  // namespace torpor::control
