// What operators ask: drains, watches, the check of records, tombstones.

#include "control/core/invariants.h"
#include "control/testing/plane_test_base.h"
#include "control/watch.h"
#include "torpor/v1/record.pb.h"

namespace torpor::control {
namespace {

using ateapi::ACTOR_STATE_PAUSED;
using ateapi::ACTOR_STATE_RUNNING;
using ateapi::ACTOR_STATE_SUSPENDED;
using std::chrono::seconds;
using torpor::v1::DrainNodeRequest;
using torpor::v1::Node;
using torpor::v1::WatchActorsResponse;

class Operators : public PlaneTest {
 protected:
  StatusOr<Node> Drain(DrainNodeRequest::Mode mode, bool cancel = false) {
    DrainNodeRequest request;
    request.set_name("node-1");
    request.set_mode(mode);
    request.set_cancel(cancel);
    return plane->DrainNode(request);
  }
  Node GetNode() {
    torpor::v1::GetNodeRequest request;
    request.set_name("node-1");
    auto node = plane->GetNode(request);
    EXPECT_THAT(node, IsOk());
    return node.ok() ? *node : Node();
  }
  std::string EventTypes() {
    torpor::v1::ListEventsRequest list;
    list.set_node_name("node-1");
    auto events = plane->ListEvents(list);
    EXPECT_THAT(events, IsOk());
    std::string out;
    for (const auto& event : events->events()) {
      if (!event.has_actor()) out = event.type() + " " + out;
    }
    return out;
  }
};

TEST_F(Operators, B9_DrainSuspendsFirst) {
  MakeAll();
  for (const char* name : {"b", "c", "d"}) ASSERT_OK(MakeActor(name));
  for (const char* name : {"a", "b", "c"}) ASSERT_OK(Await(StartResume(name)));
  world().sandboxes[Uid("a")].value = 7;
  ASSERT_OK(Await(StartPause("c")));
  ASSERT_OK_AND_ASSIGN(Node node, Drain(DrainNodeRequest::MODE_UNSPECIFIED));
  EXPECT_EQ(node.state(), Node::STATE_DRAINING);
  EXPECT_EQ(node.drain(), DrainNodeRequest::MODE_SUSPEND);
  EXPECT_EQ(node.only_here(), 3);
  RunFor(seconds(5));
  EXPECT_EQ(GetNode().state(), Node::STATE_DRAINED);
  EXPECT_EQ(GetNode().only_here(), 0);
  for (const char* name : {"a", "b", "c", "d"}) EXPECT_EQ(State(name), ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(EventTypes(), "NodeRegistered NodeDraining NodeDrained ");
  auto refused = Await(StartResume("d")).status();
  EXPECT_THAT(refused, HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
  EXPECT_THAT(refused, MessageHas("draining"));
  CheckRules();
  // It survives a registration of the node and a restart of the control plane.
  Register();
  Restart();
  RunFor(seconds(2));
  EXPECT_EQ(GetNode().state(), Node::STATE_DRAINED);
  torpor::v1::RenewLeaseRequest renew;
  renew.set_lease_id(lease_id);
  renew.set_boot_id(world().boot_id);
  ASSERT_OK_AND_ASSIGN(auto renewed, plane->RenewLease(renew));
  EXPECT_TRUE(renewed.draining());
  ASSERT_OK_AND_ASSIGN(node, Drain(DrainNodeRequest::MODE_UNSPECIFIED, /*cancel=*/true));
  EXPECT_EQ(node.state(), Node::STATE_READY);
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 7);
}

TEST_F(Operators, CordonKeepsWhatRuns) {
  MakeAll();
  ASSERT_OK(MakeActor("b"));
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Drain(DrainNodeRequest::MODE_CORDON));
  RunFor(seconds(30));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_EQ(GetNode().state(), Node::STATE_DRAINING);
  EXPECT_THAT(Await(StartResume("b")), HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
  // A call that waits for room gets it from the uncordon.
  auto waiting = StartResume("b", seconds(30));
  Run();
  EXPECT_FALSE(waiting->has_value());
  ASSERT_OK(Drain(DrainNodeRequest::MODE_UNSPECIFIED, /*cancel=*/true));
  EXPECT_OK(Await(waiting));
}

TEST_F(Operators, ADrainTriesAgain) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  world().FailNext("CaptureActor", Fail(reasons::kDiskFull, "no room"));
  ASSERT_OK(Drain(DrainNodeRequest::MODE_SUSPEND));
  RunFor(seconds(5));
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
  EXPECT_EQ(world().calls["CaptureActor"], 1) << "not at once";
  RunFor(seconds(10));
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
  DrainNodeRequest none;
  none.set_name("none");
  EXPECT_THAT(plane->DrainNode(none), HasReason(Code::kNotFound, "NODE_NOT_FOUND"));
}

TEST_F(Operators, J4_DiskPressureTakesNoNewActors) {
  MakeAll();
  ASSERT_OK(MakeActor("b"));
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartPause("a")));
  torpor::v1::RenewLeaseRequest renew;
  renew.set_lease_id(lease_id);
  renew.set_boot_id(world().boot_id);
  renew.mutable_disk()->set_pressure(true);
  ASSERT_OK(plane->RenewLease(renew));
  auto refused = Await(StartResume("b")).status();
  EXPECT_THAT(refused, HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
  EXPECT_THAT(refused, MessageHas("disk is nearly full"));
  EXPECT_OK(Await(StartResume("a"))) << "its only copy is there";
  EXPECT_TRUE(GetNode().disk().pressure());
  auto waiting = StartResume("b", seconds(30));
  Run();
  renew.mutable_disk()->set_pressure(false);
  ASSERT_OK(plane->RenewLease(renew));
  EXPECT_OK(Await(waiting));
}

// The node is away while an actor of it is deleted.
TEST_F(Operators, B15_NodeDirNeverFreed) {
  for (bool paused : {true, false}) {
    Reset();
    lease_id.clear();
    MakeAll();
    ASSERT_OK(Await(StartResume("a")));
    if (paused) {
      ASSERT_OK(Await(StartPause("a")));
    }
    const std::string uid = Uid("a");
    clock.Advance(seconds(30));
    auto deleted = StartDelete("a", true);
    while (plane->RunReady() || world().queued() > 0) {
      if (world().queued() > 0) world().RunAt(0, FakeWorld::Fate::kLoseRequest);
    }
    ASSERT_TRUE(deleted->has_value());
    ASSERT_OK(**deleted);
    EXPECT_EQ(world().calls["StopActor"], 0);
    auto response = plane->RegisterNode(world().Registration());
    ASSERT_OK(response);
    lease_id = response->lease_id();
    for (const std::string& stop : response->stop_actor_uids()) world().sandboxes.erase(stop);
    Run();
    EXPECT_EQ(world().calls["StopActor"], 1) << "the tombstone";
    EXPECT_TRUE(world().local_snapshots[uid].empty());
    EXPECT_TRUE(world().sandboxes.empty());
    ASSERT_OK_AND_ASSIGN(auto left, store().Scan(Kind::kGarbage, "", "", 10));
    EXPECT_TRUE(left.empty());
  }
}

TEST_F(Operators, ListNodeActorsNamesWhatMustStay) {
  MakeAll();
  for (const char* name : {"b", "c"}) ASSERT_OK(MakeActor(name));
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartResume("b")));
  ASSERT_OK(Await(StartPause("b")));
  auto pausing = StartPause("a");
  plane->RunReady();
  torpor::v1::ListNodeActorsRequest request;
  request.set_lease_id(lease_id);
  ASSERT_OK_AND_ASSIGN(auto here, plane->ListNodeActors(request));
  ASSERT_EQ(here.actors_size(), 2) << "c never was there";
  for (const auto& actor : here.actors()) {
    EXPECT_EQ(actor.keep_snapshot_names_size(), 1) << "one that is being written stays, too";
  }
  request.set_lease_id("other");
  EXPECT_THAT(plane->ListNodeActors(request), HasReason(Code::kFailedPrecondition, "STALE_LEASE"));
}

TEST_F(Operators, ExplainShowsTheOpenOperation) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  auto pause = StartPause("a");
  plane->RunReady();
  clock.Advance(seconds(3));
  torpor::v1::ExplainActorRequest explain;
  *explain.mutable_actor() = Ref("a");
  explain.add_verbs(torpor::v1::VERB_PAUSE);
  ASSERT_OK_AND_ASSIGN(auto open, plane->ExplainActor(explain));
  ASSERT_EQ(open.reports_size(), 1);
  EXPECT_EQ(open.reports(0).step(), "CHECKPOINT");
  EXPECT_GE(open.reports(0).total_ms(), 3000);
  EXPECT_EQ(open.reports(0).node_name(), "node-1");
  ASSERT_OK(Await(pause));
  ASSERT_OK_AND_ASSIGN(auto ended, plane->ExplainActor(explain));
  ASSERT_EQ(ended.reports_size(), 1);
  EXPECT_EQ(ended.reports(0).step(), "");
  EXPECT_EQ(ended.reports(0).op_id(), open.reports(0).op_id());
}

// ---- WatchActors ----

class Watching : public Operators {
 protected:
  // What the watch has to say now, as text.
  std::string Read(const std::shared_ptr<ActorWatch>& watch) {
    std::string out;
    while (true) {
      auto slot = MakeSlot<WatchActorsResponse>();
      watch->Next(Into(slot));
      if (!slot->has_value()) {
        waiting = slot;
        return out;
      }
      out += Text(**slot) + " ";
      if (!(**slot).ok()) return out;
    }
  }
  // What the waiting call was told, and what there is after it.
  std::string WaitingAndMore(const std::shared_ptr<ActorWatch>& watch) {
    std::string told = Text(**waiting) + " ";
    return told + Read(watch);
  }
  static std::string Text(const StatusOr<WatchActorsResponse>& message) {
    if (!message.ok()) return ReasonOf(message.status());
    return WatchActorsResponse::Kind_Name(message->kind()).substr(sizeof("KIND_") - 1) +
           (message->has_actor() ? ":" + message->actor().metadata().name() : "");
  }
  Slot<WatchActorsResponse> waiting;
};

TEST_F(Watching, AddedSyncedThenChanges) {
  MakeAll();
  ASSERT_OK(MakeActor("b"));
  torpor::v1::WatchActorsRequest request;
  request.set_atespace("demo");
  ASSERT_OK_AND_ASSIGN(auto watch, plane->WatchActors(request));
  EXPECT_EQ(Read(watch), "ADDED:a ADDED:b SYNCED ");
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_TRUE(waiting->has_value()) << "the one who waits is told at once";
  EXPECT_EQ(Text(**waiting), "MODIFIED:a");
  const std::string more = Read(watch);
  ASSERT_OK(Await(StartPause("a")));
  ASSERT_OK(Await(StartResume("a")));
  std::string rest = WaitingAndMore(watch);
  EXPECT_EQ(rest, "MODIFIED:a MODIFIED:a ") << "versions may be skipped, the last one is not";
  ASSERT_OK(MakeActor("c"));
  ASSERT_OK(Await(StartDelete("b")));
  rest = WaitingAndMore(watch);
  EXPECT_EQ(rest, "ADDED:c DELETED:b ");
  RunFor(seconds(31));
  EXPECT_EQ(Text(**waiting), "BOOKMARK");
  watch->Stop();
  EXPECT_EQ(Read(watch), "CANCELLED ");
}

TEST_F(Watching, AReplacedActorIsDeletedAndAdded) {
  MakeAll();
  torpor::v1::WatchActorsRequest request;
  *request.add_actors() = Ref("a");
  ASSERT_OK_AND_ASSIGN(auto watch, plane->WatchActors(request));
  auto first = MakeSlot<WatchActorsResponse>();
  watch->Next(Into(first));
  ASSERT_TRUE(first->has_value());
  // The reader is slow: it comes back when `a` is another one.
  ASSERT_OK(Await(StartDelete("a")));
  ASSERT_OK(MakeActor("a"));
  ASSERT_OK(MakeActor("other"));
  EXPECT_EQ(Read(watch), "SYNCED DELETED:a ADDED:a ");
}

TEST_F(Watching, AStopOfTheControlPlaneEndsIt) {
  MakeAll();
  ASSERT_OK_AND_ASSIGN(auto watch, plane->WatchActors({}));
  EXPECT_EQ(Read(watch), "ADDED:a SYNCED ");
  plane.reset();
  ASSERT_TRUE(waiting->has_value());
  EXPECT_EQ(Text(**waiting), "SHUTTING_DOWN");
  Restart();
  torpor::v1::WatchActorsRequest with_token;
  with_token.set_resume_token("t");
  EXPECT_THAT(plane->WatchActors(with_token), HasReason(Code::kOutOfRange, "RESUME_TOKEN_EXPIRED"));
}

TEST_F(Watching, TooManyAreRefused) {
  MakeAll();
  std::vector<std::shared_ptr<ActorWatch>> open;
  for (int i = 0; i < 1000; ++i) {
    ASSERT_OK_AND_ASSIGN(auto watch, plane->WatchActors({}));
    open.push_back(watch);
  }
  EXPECT_THAT(plane->WatchActors({}), HasReason(Code::kResourceExhausted, "TOO_MANY_STREAMS"));
  open.pop_back();
  EXPECT_THAT(plane->WatchActors({}), IsOk());
}

// ---- the check of records ----

class CheckOfRecords : public Operators {
 protected:
  // Loads the records of the store, lets `damage` change the actor, and checks.
  std::string Findings(const std::function<void(torpor::v1::ActorRecord&)>& damage) {
    auto row = store().Get(Kind::kActor, "demo/a");
    EXPECT_THAT(row, IsOk());
    torpor::v1::ActorRecord record;
    EXPECT_TRUE(record.ParseFromString((*row)->value));
    damage(record);
    Batch batch;
    batch.writes.push_back({Kind::kActor, "demo/a", record.SerializeAsString(), kAnyVersion});
    plane.reset();
    EXPECT_THAT(store().Commit(batch), IsOk());
    Restart();
    auto checked = plane->CheckRecords({});
    EXPECT_THAT(checked, IsOk());
    std::string out;
    for (const auto& finding : checked->findings()) out += finding.rule() + " ";
    return out;
  }
};

TEST_F(CheckOfRecords, EveryRuleIsFoundBroken) {
  using torpor::v1::ActorRecord;
  struct Case {
    std::string rule;
    std::function<void(ActorRecord&)> damage;
  };
  const std::vector<Case> kCases = {
      {"", [](ActorRecord&) {}},
      {"running-has-worker allocation",
       [](ActorRecord& r) { r.mutable_actor()->mutable_status()->set_state(ACTOR_STATE_RUNNING); }},
      {"resting-has-no-worker ",
       [](ActorRecord& r) {
         r.mutable_binding()->set_worker_uid("11111111-1111-4111-8111-111111111111");
         r.mutable_binding()->set_node_name("node-1");
       }},
      {"worker-exists ", [](ActorRecord& r) { r.mutable_binding()->set_worker_uid("none"); }},
      {"operation-matches-state ",
       [](ActorRecord& r) {
         r.mutable_actor()->mutable_status()->set_state(ateapi::ACTOR_STATE_CRASHED);
         r.mutable_operation()->set_op_id("x");
         *r.mutable_operation()->mutable_deadline() = ToProto(WallTime(std::chrono::hours(500000)));
       }},
      {"current-generation-complete ", [](ActorRecord& r) { r.clear_generations(); }},
      {"in-progress-is-driven ",
       [](ActorRecord& r) {
         r.mutable_generations(0)->mutable_generation()->mutable_storages(0)->set_status(
             torpor::v1::STORAGE_STATUS_IN_PROGRESS);
       }},
      {"generation-order ",
       [](ActorRecord& r) { r.mutable_generations(0)->mutable_generation()->set_generation(99); }},
      {"local-on-known-node ",
       [](ActorRecord& r) {
         r.mutable_generations(0)->mutable_generation()->mutable_storages(0)->set_node_name("");
       }},
      {"one-storage-per-durability ",
       [](ActorRecord& r) {
         auto* storages = r.mutable_generations(0)->mutable_generation()->mutable_storages();
         *storages->Add() = storages->Get(0);
       }},
      {"durable-has-manifest ",
       [](ActorRecord& r) {
         auto& durable = *r.mutable_generations(0)->mutable_generation()->add_storages();
         durable.set_durability(torpor::v1::DURABILITY_DURABLE);
         durable.set_status(torpor::v1::STORAGE_STATUS_COMPLETED);
         durable.set_uri("file:///store/x");
       }},
      {"borrowed-exists ", [](ActorRecord& r) { r.mutable_borrowed()->set_tag_uid("gone"); }},
      {"parent-exists ",
       [](ActorRecord& r) { r.mutable_actor()->mutable_metadata()->set_atespace("gone"); }},
  };
  for (const Case& c : kCases) {
    Reset();
    lease_id.clear();
    MakeAll();
    ASSERT_OK(Await(StartResume("a")));
    ASSERT_OK(Await(StartPause("a")));
    const std::string found = Findings(c.damage);
    const std::string first = c.rule.substr(0, c.rule.find(' '));
    if (first.empty()) {
      EXPECT_EQ(found, "");
    } else {
      EXPECT_NE(found.find(first + " "), std::string::npos) << c.rule << " got " << found;
    }
  }
}

TEST_F(CheckOfRecords, AStuckUploadSaysWhy) {
  MakeAll();
  ASSERT_OK(Await(StartResume("a")));
  world().FailNext("UploadSnapshot", Fail(reasons::kObjectStorageUnavailable, "503"), 100000);
  StartSuspend("a");
  RunFor(std::chrono::minutes(1));
  ASSERT_OK_AND_ASSIGN(auto early, plane->CheckRecords({}));
  EXPECT_EQ(early.findings_size(), 0);
  EXPECT_EQ(early.actors_checked(), 1);
  RunFor(std::chrono::minutes(15));
  ASSERT_OK_AND_ASSIGN(auto late, plane->CheckRecords({}));
  ASSERT_EQ(late.findings_size(), 1);
  EXPECT_EQ(late.findings(0).rule(), "operation-in-time");
  EXPECT_NE(late.findings(0).message().find("503"), std::string::npos);
  torpor::v1::CheckRecordsRequest other;
  other.set_atespace("other");
  ASSERT_OK_AND_ASSIGN(auto scoped, plane->CheckRecords(other));
  EXPECT_EQ(scoped.findings_size(), 0);
}

}  // namespace
}  // namespace torpor::control
