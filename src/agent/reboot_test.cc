// What is left of LOCAL generations after the machine was restarted (faults.md A11).

#include <gtest/gtest.h>
#include <unistd.h>

#include "agent/housekeeper.h"
#include "agent/local_sums.h"
#include "agent/testing/test_node.h"
#include "os/fs/testing/power_cut.h"

namespace torpor::agent {
namespace {

constexpr char kNextBoot[] = "88888888-8888-4888-8888-888888888888";

Status Outcome(const StatusOr<torpor::v1::Operation>& operation) {
  return TestNode::Outcome(operation);
}

// A running actor, its image flushed.
void StartAndFlush(TestNode& node) {
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  EXPECT_TRUE(node.agent().HasUnfinished());
  node.agent().FinishInBackground([] { return false; });
}

// A paused actor with generation 2, acknowledged.
void Pause(TestNode& node) {
  StartAndFlush(node);
  auto captured = node.agent().CaptureActor(node.CaptureRequest(2, "s2"));
  ASSERT_OK(Outcome(captured));
  EXPECT_FALSE(node.agent().HasUnfinished()) << "nothing is hashed before the acknowledgement";
  node.agent().Acknowledged(*captured);
  EXPECT_TRUE(node.agent().HasUnfinished());
}

void WriteSums(TestNode& node) {
  node.agent().FinishInBackground([] { return false; });
  EXPECT_FALSE(node.agent().HasUnfinished());
}

std::string Local(const std::string& file) {
  return NodeDirs::LocalPath(kActorUid, "s2") + "/" + file;
}

TEST(RebootTest, AGenerationWithSumsSurvivesWithAllItsBytes) {
  TestNode node;
  Pause(node);
  WriteSums(node);
  node.Reboot(kNextBoot);
  ASSERT_EQ(node.agent().GetInventory().local_copies_size(), 1);
  EXPECT_EQ(node.agent().GetInventory().local_copies(0).generation(), 2);
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartLocal(3, "s2", 2))));
  EXPECT_EQ(node.worker().MemoryOf(kActorUid), "boot+");
  // Also by the agent after this one.
  node.NewAgent();
  EXPECT_TRUE(node.HasLocal("s2", 2));
}

TEST(RebootTest, A11_AGenerationWithoutSumsIsGone) {
  TestNode node;
  Pause(node);
  node.Reboot(kNextBoot);
  EXPECT_EQ(node.agent().GetInventory().local_copies_size(), 0);
  EXPECT_THAT(Outcome(node.agent().StartActor(node.StartLocal(3, "s2", 2))),
              HasReason(Code::kDataLoss, "LOCAL_SNAPSHOT_GONE"));
  EXPECT_EQ(node.worker().starts(), 1) << "never a start from it";
}

// Everything that a power cut can make of files that were not flushed.
TEST(RebootTest, A11_ATornGenerationIsNeverUsed) {
  struct Case {
    const char* what;
    std::function<Status(const os::DirFd&)> damage;
  };
  const Case cases[] = {
      {"a hole of the right size",
       [](const os::DirFd& d) {
         return d.WriteFile(Local("memory.img"), std::string(5, '\0'), 0440);
       }},
      {"cut", [](const os::DirFd& d) { return d.WriteFile(Local("memory.img"), "boo", 0440); }},
      {"empty", [](const os::DirFd& d) { return d.WriteFile(Local("memory.img"), "", 0440); }},
      {"missing", [](const os::DirFd& d) { return d.Unlink(Local("memory.img")); }},
      {"one other byte",
       [](const os::DirFd& d) { return d.WriteFile(Local("memory.img"), "boot-", 0440); }},
      {"manifest empty",
       [](const os::DirFd& d) { return d.WriteFile(Local("manifest.json"), "", 0440); }},
      {"manifest missing", [](const os::DirFd& d) { return d.Unlink(Local("manifest.json")); }},
      {"sums empty", [](const os::DirFd& d) { return d.WriteFile(Local("sums.json"), "", 0440); }},
      {"sums of nothing",
       [](const os::DirFd& d) { return d.WriteFile(Local("sums.json"), "{\"format\": 1}", 0440); }},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    TestNode node;
    Pause(node);
    WriteSums(node);
    ASSERT_OK(c.damage(node.dirs().root()));
    node.Reboot(kNextBoot);
    EXPECT_THAT(Outcome(node.agent().StartActor(node.StartLocal(3, "s2", 2))),
                HasReason(Code::kDataLoss, "LOCAL_SNAPSHOT_GONE"));
    EXPECT_EQ(node.worker().starts(), 1) << "never a wrong resume";
    EXPECT_EQ(node.agent().GetInventory().local_copies_size(), 0) << "and it is reported as lost";
  }
}

// With a disk that keeps only what was flushed: nothing of a pause was, so nothing may be used.
TEST(RebootTest, A11_PowerCutRightAfterAPauseFallsBackToTheDurableGeneration) {
  TestNode node;
  StartAndFlush(node);
  ASSERT_OK(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))));
  ASSERT_OK(Outcome(node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"))));
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartLocal(3, "s2", 2))));
  os::PowerCut cut(node.path());
  auto captured = node.agent().CaptureActor(node.CaptureRequest(4, "s4"));
  ASSERT_OK(Outcome(captured));
  node.agent().Acknowledged(*captured);
  node.agent().FinishInBackground([] { return false; });
  EXPECT_EQ(cut.flushes(), 0) << "a pause waits for no flush";
  os::TempDir found;
  cut.After(found.path());
  // What the disk has of s4 takes the place of what the page cache had.
  const std::string s4 = NodeDirs::LocalPath(kActorUid, "s4");
  EXPECT_FALSE(found.dir().Exists(s4));
  for (const char* file : {"memory.img", "manifest.json", "sums.json"}) {
    ASSERT_OK(node.dirs().root().Unlink(s4 + "/" + file));
  }
  ASSERT_OK(node.dirs().root().Rmdir(s4));
  node.Reboot(kNextBoot);
  auto start = node.StartLocal(5, "s4", 4);
  EXPECT_THAT(Outcome(node.agent().StartActor(start)),
              HasReason(Code::kDataLoss, "LOCAL_SNAPSHOT_GONE"));
  auto durable = node.StartRequest(6);
  durable.add_sources()->mutable_durable()->set_uri("file:///x/s2");
  durable.mutable_sources(0)->set_generation(2);
  durable.set_fidelity(torpor::v1::FIDELITY_MEMORY);
  ASSERT_OK(Outcome(node.agent().StartActor(durable)));
  EXPECT_EQ(node.worker().MemoryOf(kActorUid), "boot+");
}

TEST(RebootTest, AnUploadOfALostGenerationAsksObjectStorage) {
  TestNode node;
  Pause(node);
  ASSERT_OK(Outcome(node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"))));
  ASSERT_OK(node.dirs().root().WriteFile(Local("manifest.json"), "", 0440));
  node.Reboot(kNextBoot);
  auto again = node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"));
  ASSERT_OK(Outcome(again));
  EXPECT_TRUE(again->upload().already_present());
  EXPECT_THAT(Outcome(node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/none"))),
              HasReason(Code::kDataLoss, "LOCAL_SNAPSHOT_GONE"));
}

TEST(RebootTest, JournalsOfAnEarlierBootAreDiscarded) {
  TestNode node;
  auto start = node.StartRequest(1);
  ASSERT_OK(Outcome(node.agent().StartActor(start)));
  node.Reboot(kNextBoot);
  torpor::v1::GetOperationRequest get;
  get.set_op_id(start.op().op_id());
  EXPECT_THAT(node.agent().GetOperation(get), HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
  EXPECT_EQ(node.agent().GetInventory().residents_size(), 0);
}

TEST(CaptureCheckTest, NoFilesAreASnapshotOnlyOfVolumesThatAreNotThere) {
  TestNode node;
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(1))));
  node.worker().CaptureNothing();
  EXPECT_THAT(Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2"))),
              HasReason(Code::kInternal, "INVALID_CHECKPOINT_RESULT"));
  ASSERT_OK(Outcome(node.agent().StartActor(node.StartRequest(3))));
  node.worker().CaptureNothing();
  auto capture = node.CaptureRequest(4, "s4");
  capture.set_fidelity(torpor::v1::FIDELITY_VOLUMES);
  ASSERT_OK(Outcome(node.agent().CaptureActor(capture)));
  EXPECT_TRUE(node.HasLocal("s4", 4));
}

TEST(SumsQueueTest, GivesWayAndBeginsAnew) {
  TestNode node;
  Pause(node);
  node.agent().FinishInBackground([] { return true; });
  EXPECT_TRUE(node.agent().HasUnfinished());
  EXPECT_FALSE(node.dirs().root().Exists(Local("sums.json")));
  WriteSums(node);
  EXPECT_TRUE(node.dirs().root().Exists(Local("sums.json")));
}

TEST(SumsQueueTest, WhatWasPrunedMeanwhileIsForgotten) {
  TestNode node;
  Pause(node);
  ASSERT_OK(node.agent().core().snapshots->Delete(kActorUid, "s2", Clock::Real()->WallNow()));
  WriteSums(node);
}

TEST(SumsQueueTest, TheNextAgentGoesOnWhereThisOneEnded) {
  TestNode node;
  Pause(node);
  node.NewAgent();
  EXPECT_TRUE(node.agent().HasUnfinished());
  WriteSums(node);
  node.NewAgent();
  node.agent().FinishInBackground([] { return false; });  // the image
  EXPECT_FALSE(node.agent().HasUnfinished());
}

TEST(HousekeepingPlanTest, WorkWaitsForQuietButNotForEver) {
  using std::chrono::seconds;
  const MonotonicTime t0{};
  HousekeepingPlan plan({.quiet = seconds(5), .patience = seconds(60)}, t0);
  EXPECT_FALSE(plan.MayWork(t0, false, t0));
  EXPECT_FALSE(plan.MayWork(t0 + seconds(10), true, t0 + seconds(6)));  // quiet for 4 s
  EXPECT_FALSE(plan.MayWork(t0 + seconds(20), true, std::nullopt));     // an operation runs
  EXPECT_TRUE(plan.MustYield(t0 + seconds(20)));
  EXPECT_TRUE(plan.MayWork(t0 + seconds(30), true, t0 + seconds(25)));
  EXPECT_TRUE(plan.MayWork(t0 + seconds(70), true, std::nullopt));  // pending for 60 s
  EXPECT_FALSE(plan.MustYield(t0 + seconds(70)));
  EXPECT_FALSE(plan.MayWork(t0 + seconds(71), false, std::nullopt));
  EXPECT_FALSE(plan.MayWork(t0 + seconds(72), true, std::nullopt));  // patience begins anew
}

TEST(HousekeepingPlanTest, PeriodsBeginAtTheStart) {
  using std::chrono::minutes;
  const MonotonicTime t0{};
  HousekeepingPlan plan({.gc_period = minutes(5), .cache_period = minutes(1)}, t0);
  EXPECT_TRUE(plan.TakeGc(t0));
  EXPECT_FALSE(plan.TakeGc(t0 + minutes(4)));
  EXPECT_TRUE(plan.TakeGc(t0 + minutes(5)));
  EXPECT_TRUE(plan.TakeCache(t0));
  EXPECT_FALSE(plan.TakeCache(t0));
  EXPECT_TRUE(plan.TakeCache(t0 + minutes(1)));
}

}  // namespace
}  // namespace torpor::agent
