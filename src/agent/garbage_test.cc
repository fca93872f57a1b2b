#include "agent/garbage.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

#include "agent/eviction.h"
#include "agent/testing/test_node.h"

namespace torpor::agent {
namespace {

using std::chrono::minutes;

constexpr char kGone[] = "44444444-4444-4444-8444-444444444444";

// ---- Verdicts ----

GarbageFacts OneGoneTree() {
  GarbageFacts facts;
  GarbageFacts::Tree tree;
  tree.uid = kGone;
  tree.age = minutes(11);
  facts.trees.push_back(tree);
  facts.live["somebody else"] = {};
  return facts;
}

TEST(JudgeGarbageTest, ATreeGoesOnlyWhenEverybodyAgrees) {
  struct Case {
    const char* what;
    std::function<void(GarbageFacts&)> change;
    bool goes;
  };
  const Case cases[] = {
      {"nothing speaks for it", [](GarbageFacts&) {}, true},
      {"in the live set", [](GarbageFacts& f) { f.live[kGone] = {}; }, false},
      {"in a worker", [](GarbageFacts& f) { f.trees[0].resident = true; }, false},
      {"open in the journal", [](GarbageFacts& f) { f.trees[0].in_journal = true; }, false},
      {"something is mounted", [](GarbageFacts& f) { f.trees[0].mounted = true; }, false},
      {"young", [](GarbageFacts& f) { f.trees[0].age = minutes(9); }, false},
      {"exactly old enough", [](GarbageFacts& f) { f.trees[0].age = minutes(10); }, true},
      {"from the future", [](GarbageFacts& f) { f.trees[0].age = -minutes(60); }, false},
      {"the live set is empty", [](GarbageFacts& f) { f.live.clear(); }, false},
  };
  for (const Case& c : cases) {
    GarbageFacts facts = OneGoneTree();
    c.change(facts);
    EXPECT_EQ(JudgeGarbage(facts, {}).trees.count(kGone), c.goes ? 1U : 0U) << c.what;
  }
}

TEST(JudgeGarbageTest, ASnapshotGoesWhenItsActorLivesAndDoesNotWantIt) {
  struct Case {
    const char* what;
    std::function<void(GarbageFacts&)> change;
    bool goes;
  };
  const Case cases[] = {
      {"unwanted", [](GarbageFacts&) {}, true},
      {"wanted", [](GarbageFacts& f) { f.live[kGone] = {"s2"}; }, false},
      {"being read", [](GarbageFacts& f) { f.trees[0].snapshots[0].pinned = true; }, false},
      {"young", [](GarbageFacts& f) { f.trees[0].snapshots[0].age = minutes(1); }, false},
      {"in the journal", [](GarbageFacts& f) { f.trees[0].in_journal = true; }, false},
      {"restored just now", [](GarbageFacts& f) { f.trees[0].resident = true; }, false},
      {"the live set is empty", [](GarbageFacts& f) { f.live.clear(); }, false},
  };
  for (const Case& c : cases) {
    GarbageFacts facts = OneGoneTree();
    facts.live[kGone] = {"s4"};
    facts.trees[0].snapshots = {{"s2", minutes(20), false}, {"s4", minutes(20), false}};
    c.change(facts);
    Garbage garbage = JudgeGarbage(facts, {});
    EXPECT_EQ(garbage.snapshots.count({kGone, "s2"}), c.goes ? 1U : 0U) << c.what;
    EXPECT_TRUE(garbage.trees.empty());
    if (facts.live.count(kGone) > 0 && facts.live[kGone].count("s4") > 0) {
      EXPECT_EQ(garbage.snapshots.count({kGone, "s4"}), 0U) << c.what;
    }
  }
}

TEST(VerdictsTest, ThreePassesInARow) {
  Garbage seen;
  seen.trees = {"a"};
  seen.snapshots = {{"b", "s1"}};
  seen.sockets = {"worker-old.sock"};
  Verdicts verdicts(3);
  EXPECT_EQ(verdicts.Confirm(seen), Garbage());
  EXPECT_EQ(verdicts.Confirm(seen), Garbage());
  EXPECT_EQ(verdicts.Confirm(Garbage()), Garbage());  // once not seen: from the beginning
  EXPECT_EQ(verdicts.Confirm(seen), Garbage());
  EXPECT_EQ(verdicts.Confirm(seen), Garbage());
  EXPECT_EQ(verdicts.Confirm(seen), seen);
  verdicts.Reset();
  EXPECT_EQ(verdicts.Confirm(seen), Garbage());
}

TEST(DiskPressureTest, ATenthOrTwoLargestCaptures) {
  EXPECT_FALSE(IsDiskPressure(100, 1000, 50));
  EXPECT_TRUE(IsDiskPressure(99, 1000, 0));
  EXPECT_TRUE(IsDiskPressure(500, 1000, 251));
  EXPECT_FALSE(IsDiskPressure(500, 1000, 250));
  EXPECT_TRUE(IsDiskPressure(INT64_MAX / 2, INT64_MAX, INT64_MAX / 2));
}

// ---- PlanEviction ----

CacheEntry Entry(const std::string& key, int64_t bytes, int used_at, bool pinned = false,
                 int rank = 1) {
  return {key, bytes, WallTime(minutes(used_at)), pinned, rank};
}

TEST(PlanEvictionTest, Table) {
  using Keys = std::vector<std::string>;
  const WallTime now(minutes(100));
  const CacheBudget budget{1000, minutes(10)};
  EXPECT_EQ(PlanEviction({}, now, budget), Keys());
  EXPECT_EQ(PlanEviction({Entry("a", 1000, 0)}, now, budget), Keys()) << "within the budget";
  EXPECT_EQ(PlanEviction({Entry("new", 500, 80), Entry("old", 501, 1)}, now, budget), Keys{"old"});
  // To nine tenths, so that the next entry does not evict again.
  EXPECT_EQ(PlanEviction({Entry("a", 90, 1), Entry("b", 50, 2), Entry("c", 870, 3)}, now, budget),
            (Keys{"a", "b"}));
  EXPECT_EQ(PlanEviction({Entry("pinned", 900, 1, true), Entry("b", 200, 2)}, now, budget),
            Keys{"b"});
  EXPECT_EQ(PlanEviction({Entry("pinned", 2000, 1, true)}, now, budget), Keys());
  EXPECT_EQ(PlanEviction({Entry("young", 2000, 91)}, now, budget), Keys());
  EXPECT_EQ(PlanEviction({Entry("future", 2000, 200)}, now, budget), Keys());
  // Blobs before trees, whatever their age.
  EXPECT_EQ(PlanEviction({Entry("tree", 900, 1), Entry("blob", 200, 80, false, 0)}, now, budget),
            Keys{"blob"});
}

// ---- Passes over a real tree ----

class GarbageTest : public testing::Test {
 protected:
  GarbageTest() {
    node_.SetGarbageMinAge(Duration(0));
    node_.SetMounts([this](const std::string& top) { return Mounts(top); });
    node_.NewAgent();
    node_.RegisterWorker();
    node_.registry().SetLive({{kActorUid, {"s2"}}});
    MakeTree(kGone);
  }
  StatusOr<std::vector<std::string>> Mounts(const std::string& top) {
    if (!mounts_error_.ok()) return mounts_error_;
    std::vector<std::string> out;
    for (const std::string& point : mounted_) {
      if (point == top || point.rfind(top + "/", 0) == 0) out.push_back(point);
    }
    return out;
  }
  void MakeTree(const std::string& uid) {
    ASSERT_OK(node_.dirs().EnsureActor(uid));
    ASSERT_OK(node_.dirs().root().WriteFile(NodeDirs::ActorPath(uid, "logs/app.log"), "x", 0600));
  }
  bool Exists(const std::string& uid) { return node_.dirs().OpenActor(uid).ok(); }
  void Passes(int count) {
    for (int i = 0; i < count; ++i) (void)node_.agent().CollectGarbage().ok();
  }
  // An actor of generation 2, paused; the operations are acknowledged.
  void PauseLiveActor() {
    auto started = node_.agent().StartActor(node_.StartRequest(1));
    ASSERT_OK(TestNode::Outcome(started));
    auto captured = node_.agent().CaptureActor(node_.CaptureRequest(2, "s2"));
    ASSERT_OK(TestNode::Outcome(captured));
    node_.agent().Acknowledged(*started);
    node_.agent().Acknowledged(*captured);
  }

  TestNode node_;
  Status mounts_error_;
  std::vector<std::string> mounted_;
};

TEST_F(GarbageTest, ATreeThatNobodyKnowsGoesWithTheThirdPass) {
  Passes(2);
  EXPECT_TRUE(Exists(kGone));
  ASSERT_OK(node_.agent().CollectGarbage());
  EXPECT_FALSE(Exists(kGone));
  auto left = node_.dirs().root().List("actors");
  ASSERT_OK(left);
  EXPECT_TRUE(left->empty()) << left->front().name << " was renamed away and not removed";
}

TEST_F(GarbageTest, B16_NothingIsDeletedWhenTheLiveSetIsMissingOrEmpty) {
  for (int i = 0; i < 100; ++i) MakeTree(fmt::format("55555555-5555-4555-8555-{:012d}", i));
  node_.registry().SetReachable(false);
  Passes(5);
  EXPECT_THAT(node_.agent().CollectGarbage(), HasCode(Code::kUnavailable));
  node_.registry().SetReachable(true);
  node_.registry().SetLive({});
  Passes(5);
  EXPECT_EQ(node_.dirs().ListActors()->size(), 101U);
  // Passes that could not judge do not count.
  node_.registry().SetLive({{kActorUid, {}}});
  Passes(2);
  EXPECT_EQ(node_.dirs().ListActors()->size(), 101U);
  Passes(1);
  EXPECT_TRUE(node_.dirs().ListActors()->empty());
}

TEST_F(GarbageTest, B16_NothingIsDeletedWhenTheMountTableIsUnreadable) {
  mounts_error_ = ErrnoStatus(EIO, "read mountinfo");
  Passes(5);
  EXPECT_TRUE(Exists(kGone));
}

TEST_F(GarbageTest, B16_NothingIsDeletedWhenAWorkerDoesNotAnswer) {
  node_.worker().Kill();
  Passes(5);
  EXPECT_TRUE(Exists(kGone));
}

TEST_F(GarbageTest, B17_ATreeWithAMountStays) {
  mounted_ = {node_.path() + "/" + NodeDirs::ActorPath(kGone, "volumes/v")};
  Passes(5);
  EXPECT_TRUE(Exists(kGone));
  mounted_.clear();
  Passes(3);
  EXPECT_FALSE(Exists(kGone));
}

// The mount appears after the verdict: the removal itself does not cross it either.
TEST_F(GarbageTest, B17_RemovalNeverCrossesAMount) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const std::string volumes = NodeDirs::ActorPath(kGone, "volumes");
  ASSERT_OK(node_.dirs().root().MkdirExclusive(volumes + "/v", 0755));
  const std::string point = node_.path() + "/" + volumes + "/v";
  ASSERT_EQ(mount("torpor-test-gc", point.c_str(), "tmpfs", 0, "size=64k"), 0);
  ASSERT_OK(node_.dirs().root().WriteFile(volumes + "/v/sentinel", "precious", 0644));
  Passes(3);  // this test's mount table says that nothing is mounted
  EXPECT_FALSE(Exists(kGone));
  auto left = node_.dirs().root().List("actors");
  ASSERT_OK(left);
  ASSERT_EQ(left->size(), 1U);
  const std::string kept = "actors/" + left->front().name + "/volumes/v";
  EXPECT_EQ(node_.dirs().root().ReadFile(kept + "/sentinel", 100).value_or("(gone)"), "precious");
  ASSERT_EQ(umount((node_.path() + "/" + kept).c_str()), 0);
  Passes(1);
  EXPECT_TRUE(node_.dirs().root().List("actors")->empty());
}

TEST_F(GarbageTest, ActorsInAWorkerAndWithOpenOutcomesStay) {
  auto started = node_.agent().StartActor(node_.StartRequest(1));
  ASSERT_OK(TestNode::Outcome(started));
  node_.registry().SetLive({{"somebody", {}}});
  Passes(5);
  EXPECT_TRUE(Exists(kActorUid)) << "its outcome is not acknowledged";
  node_.agent().Acknowledged(*started);
  Passes(5);
  EXPECT_TRUE(Exists(kActorUid)) << "it runs";
}

TEST_F(GarbageTest, ALocalGenerationThatNobodyWantsGoesAndTheOthersStay) {
  PauseLiveActor();
  Passes(5);
  EXPECT_TRUE(node_.HasLocal("s2", 2));
  node_.registry().SetLive({{kActorUid, {"s9"}}});
  node_.agent().core().snapshots->Pin(kActorUid, "s2");
  Passes(5);
  EXPECT_TRUE(node_.HasLocal("s2", 2)) << "it is being read";
  node_.agent().core().snapshots->Unpin(kActorUid, "s2");
  Passes(3);
  EXPECT_FALSE(node_.HasLocal("s2", 2));
  EXPECT_TRUE(Exists(kActorUid));
}

// A pause snapshot of an actor that was deleted while the node was away.
TEST_F(GarbageTest, B15_APausedActorThatIsGoneFreesItsSpace) {
  PauseLiveActor();
  node_.registry().SetLive({{"somebody", {}}});
  Passes(3);
  EXPECT_FALSE(Exists(kActorUid));
}

TEST_F(GarbageTest, AnOperationAndARemovalExcludeEachOther) {
  ASSERT_TRUE(node_.agent().operations().TryHold(kActorUid));
  EXPECT_FALSE(node_.agent().operations().TryHold(kActorUid));
  EXPECT_THAT(node_.agent().StartActor(node_.StartRequest(1)),
              HasReason(Code::kAborted, "OPERATION_IN_PROGRESS"));
  node_.agent().operations().Release(kActorUid);
  ASSERT_OK(TestNode::Outcome(node_.agent().StartActor(node_.StartRequest(1))));
}

UniqueFd Listen(const std::string& path) {
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(listen(fd.get(), 1), 0);
  return fd;
}

TEST_F(GarbageTest, SocketsOfWorkersThatAreGone) {
  const std::string run = node_.path() + "/run/";
  UniqueFd served = Listen(run + "worker-served.sock");
  for (const char* name :
       {"worker-old.sock", "support-old.sock", "worker-gvisor-0.sock", "api.sock"}) {
    Listen(run + name).Reset();
  }
  Passes(2);
  EXPECT_TRUE(node_.dirs().root().Exists("run/worker-old.sock"));
  Passes(1);
  EXPECT_FALSE(node_.dirs().root().Exists("run/worker-old.sock"));
  EXPECT_FALSE(node_.dirs().root().Exists("run/support-old.sock"));
  EXPECT_TRUE(node_.dirs().root().Exists("run/worker-served.sock")) << "somebody listens";
  EXPECT_TRUE(node_.dirs().root().Exists("run/worker-gvisor-0.sock")) << "the slot is configured";
  EXPECT_TRUE(node_.dirs().root().Exists("run/api.sock")) << "no worker's";
}

TEST_F(GarbageTest, J4_DiskUsageNamesWhatTakesTheSpaceAndTheOnlyCopyStays) {
  PauseLiveActor();
  node_.agent().TidyCaches();
  torpor::v1::DiskUsage disk = node_.agent().Disk();
  EXPECT_GT(disk.total_bytes(), 0);
  EXPECT_GT(disk.snapshot_bytes(), 0);
  EXPECT_GT(disk.image_bytes(), 0);
  EXPECT_TRUE(node_.HasLocal("s2", 2));
}

}  // namespace
}  // namespace torpor::agent
