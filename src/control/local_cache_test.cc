// The local copy of a suspended generation: a cache of the durable one, never more.

#include "control/testing/plane_test_base.h"

namespace torpor::control {
namespace {

using ateapi::ACTOR_STATE_RUNNING;
using ateapi::ACTOR_STATE_SUSPENDED;

class LocalCache : public PlaneTest {
 protected:
  void SetUp() override {
    settings.evictions_max = 1;
    PlaneTest::SetUp();
    MakeAll();
    ASSERT_OK(Await(StartResume("a")));
    world().sandboxes[Uid("a")].value = 8;
    ASSERT_OK(Await(StartSuspend("a")));
  }
  torpor::v1::OperationReport LastReport() {
    torpor::v1::ExplainActorRequest explain;
    *explain.mutable_actor() = Ref("a");
    auto report = plane->ExplainActor(explain);
    EXPECT_THAT(report, IsOk());
    return report.ok() ? report->reports(0) : torpor::v1::OperationReport();
  }
  std::string Source() { return LastReport().choices(0).answer(); }
  int Storages(torpor::v1::Durability durability) {
    torpor::v1::ListGenerationsRequest request;
    *request.mutable_actor() = Ref("a");
    auto list = plane->ListGenerations(request);
    EXPECT_THAT(list, IsOk());
    int count = 0;
    for (const auto& generation : list->generations()) {
      for (const auto& storage : generation.storages()) count += storage.durability() == durability;
    }
    return count;
  }
};

TEST_F(LocalCache, AWakeAfterASuspendUsesIt) {
  EXPECT_EQ(Storages(torpor::v1::DURABILITY_LOCAL), 1);
  EXPECT_FALSE(Get("a").status().external_snapshot().snapshot_uri().empty());
  EXPECT_FALSE(Get("a").status().has_local_snapshot());
  EXPECT_EQ(Get("a").status().assigned_node(), "");
  world().objects.clear();  // not even looked at
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 8);
  EXPECT_EQ(Source(), "local");
  EXPECT_TRUE(world().problems.empty());
}

TEST_F(LocalCache, ThereAreNeverMoreThanTwo) {
  for (int i = 0; i < 4; ++i) {
    ASSERT_OK(Await(StartResume("a")));
    EXPECT_LE(world().local_snapshots[Uid("a")].size(), 2u);
    ASSERT_OK(i % 2 == 0 ? Await(StartPause("a")).status() : Await(StartSuspend("a")).status());
    Run();
    EXPECT_EQ(world().local_snapshots[Uid("a")].size(), 1u);
    EXPECT_EQ(Storages(torpor::v1::DURABILITY_LOCAL), 1);
  }
}

TEST_F(LocalCache, GoneFromTheNodeTheWakeComesFromObjectStorage) {
  world().local_snapshots.clear();
  ASSERT_OK_AND_ASSIGN(auto resumed, Await(StartResume("a")));
  EXPECT_TRUE(resumed.lost_generations().empty());
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 8);
  EXPECT_EQ(Source(), "durable");
  EXPECT_EQ(LastReport().choices(0).rejected(0).candidate(), "local");
  EXPECT_EQ(Storages(torpor::v1::DURABILITY_LOCAL), 0) << "the record names what is not there";
  EXPECT_EQ(Storages(torpor::v1::DURABILITY_DURABLE), 1);
}

TEST_F(LocalCache, ANodeWithoutItIsNoCrash) {
  world().local_snapshots.clear();
  Register();
  Run();
  EXPECT_EQ(State("a"), ACTOR_STATE_SUSPENDED);
  EXPECT_EQ(Storages(torpor::v1::DURABILITY_LOCAL), 0);
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 8);
}

TEST_F(LocalCache, AFullDiskTakesTheLongestUnusedAndNeverTheOnlyCopy) {
  for (const char* name : {"b", "c"}) {
    RunFor(std::chrono::seconds(1));
    ASSERT_OK(MakeActor(name));
    ASSERT_OK(Await(StartResume(name)));
  }
  ASSERT_OK(Await(StartSuspend("b")));
  ASSERT_OK(Await(StartPause("c")));
  torpor::v1::RenewLeaseRequest renew;
  renew.set_lease_id(lease_id);
  renew.set_boot_id(world().boot_id);
  renew.mutable_disk()->set_total_bytes(1000);
  renew.mutable_disk()->set_used_bytes(850);
  ASSERT_OK(plane->RenewLease(renew));
  Run();
  EXPECT_EQ(world().local_snapshots[Uid("a")].size(), 1u) << "there is room";

  renew.mutable_disk()->set_used_bytes(950);
  ASSERT_OK(plane->RenewLease(renew));
  Run();
  EXPECT_TRUE(world().local_snapshots[Uid("a")].empty());
  EXPECT_EQ(world().local_snapshots[Uid("b")].size(), 1u) << "used later";
  EXPECT_EQ(Storages(torpor::v1::DURABILITY_LOCAL), 0);
  for (int i = 0; i < 3; ++i) ASSERT_OK(plane->RenewLease(renew));
  Run();
  EXPECT_TRUE(world().local_snapshots[Uid("b")].empty());
  EXPECT_EQ(world().local_snapshots[Uid("c")].size(), 1u) << "its only copy";
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 8);
}

TEST_F(LocalCache, DeleteRemovesBoth) {
  const std::string uid = Uid("a");
  ASSERT_OK(Await(StartDelete("a")));
  Run();
  EXPECT_TRUE(world().local_snapshots[uid].empty());
  EXPECT_TRUE(world().objects.empty());
}

TEST_F(LocalCache, ItGivesNoMoreThanTheDurableOne) {
  ASSERT_OK(Await(StartResume("a")));
  ASSERT_OK(Await(StartPause("a")));  // MEMORY
  auto slot = MakeSlot<ateapi::SuspendActorResponse>();
  ateapi::SuspendActorRequest request;
  *request.mutable_actor() = Ref("a");
  request.set_fidelity(torpor::v1::FIDELITY_VOLUMES);
  plane->SuspendActor(request, {}, Into(slot));
  ASSERT_OK(Await(slot));
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(Source(), "local");
  EXPECT_EQ(LastReport().fidelity(), torpor::v1::FIDELITY_VOLUMES);
}

TEST_F(LocalCache, ARevertGoesToTheSameGeneration) {
  ASSERT_OK(Await(StartResume("a")));
  world().sandboxes[Uid("a")].value = 9;
  ASSERT_OK(Await(StartRevert("a")));
  ASSERT_OK(Await(StartResume("a")));
  EXPECT_EQ(world().sandboxes[Uid("a")].value, 8);
  EXPECT_EQ(State("a"), ACTOR_STATE_RUNNING);
}

}  // namespace
}  // namespace torpor::control
