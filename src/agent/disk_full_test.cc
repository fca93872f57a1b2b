// The disk of the node is full at every journal record of every operation (faults.md J1, J2, J6).

#include <fcntl.h>
#include <sys/mount.h>
#include <unistd.h>

#include <fmt/format.h>

#include "agent/testing/strike_point.h"
#include "agent/testing/test_node.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;

// A small file system of its own at the node's directory, full when asked.
class SmallDisk {
 public:
  explicit SmallDisk(std::string options = "size=48m") : options_(std::move(options)) {}
  ~SmallDisk() {
    if (path_.empty()) return;
    umount2(path_.c_str(), MNT_DETACH);
    rmdir(path_.c_str());  // the node could not remove a mount point
  }
  void Mount(const std::string& path) {
    ASSERT_EQ(mount("torpor-test-disk", path.c_str(), "tmpfs", 0, options_.c_str()), 0);
    path_ = path;
  }
  void Fill() {
    UniqueFd fd(open((path_ + "/filler").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    off_t at = 0;
    for (off_t piece = 16 << 20; piece >= 4096; piece /= 2) {
      while (fallocate(fd.get(), 0, at, piece) == 0) at += piece;
    }
    ASSERT_GT(at, 0);
  }
  void Free() { ASSERT_EQ(unlink((path_ + "/filler").c_str()), 0); }

 private:
  const std::string options_;
  std::string path_;
};

struct Case {
  const char* name;
  std::function<void(TestNode&)> prepare;
  std::function<StatusOr<Operation>(TestNode&)> run;
};

class DiskFullTest : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
  }
};

// Whatever fails: an older or the newer generation is complete, a living guest goes on, and once
// there is room again everything works.
TEST_P(DiskFullTest, J1_AtEveryRecord) {
  for (int at = 0;; ++at) {
    SCOPED_TRACE(fmt::format("full at {}", at));
    SmallDisk disk;
    StrikePoint point(at);
    TestNode node(&point, [&](const std::string& path) { disk.Mount(path); });
    GetParam().prepare(node);
    point.Arm([&] { disk.Fill(); });
    auto operation = GetParam().run(node);
    const bool struck = point.struck();
    point.Arm(nullptr);
    if (!struck) {
      EXPECT_GE(at, 4);
      return;
    }
    Status outcome = TestNode::Outcome(operation);
    if (operation.ok() && operation->has_error() && operation->method() == "CaptureActor") {
      const bool alive = MetadataOf(outcome)[kGuestAlive] == "true";
      EXPECT_EQ(alive, node.worker().Hosts(kActorUid)) << outcome;
    }
    if (!operation.ok()) {
      EXPECT_THAT(operation, HasReason(Code::kResourceExhausted, "DISK_FULL"));
    }
    const bool hosted = node.worker().Hosts(kActorUid);
    disk.Free();
    const bool newer = node.HasLocal("s4", 4);
    if (GetParam().name == std::string("Capture")) {
      EXPECT_EQ(newer, outcome.ok()) << outcome;
      EXPECT_TRUE(newer || hosted) << "a captured guest is not lost for lack of space: " << outcome;
    }
    if (newer) {
      ExpectResumes(node, "s4", 4, "boot++");
    } else {
      ExpectResumes(node, "s2", 2, "boot+");
    }
    // And the journal goes on.
    node.NewAgent();
    ASSERT_OK(TestNode::Outcome(node.agent().CaptureActor(node.CaptureRequest(30, "s30"))));
    ASSERT_LT(at, 100);
  }
}

INSTANTIATE_TEST_SUITE_P(
    , DiskFullTest,
    testing::Values(
        Case{"Start", StartAndPause,
             [](TestNode& node) { return node.agent().StartActor(node.StartLocal(3, "s2", 2)); }},
        Case{
            "Capture", StartPauseResume,
            [](TestNode& node) { return node.agent().CaptureActor(node.CaptureRequest(4, "s4")); }},
        Case{"Upload", StartAndPause,
             [](TestNode& node) {
               return node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"));
             }},
        Case{"Stop", StartPauseResume,
             [](TestNode& node) { return node.agent().StopActor(node.StopRequest(4)); }}),
    [](const auto& info) { return info.param.name; });

TEST(InodesTest, J6_AreAskedForLikeBytes) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  SmallDisk disk("size=64m,nr_inodes=80");
  TestNode node(nullptr, [&](const std::string& path) { disk.Mount(path); });
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(1))));
  Status outcome = TestNode::Outcome(node.agent().CaptureActor(node.CaptureRequest(2, "s2")));
  EXPECT_THAT(outcome, HasReason(Code::kResourceExhausted, "DISK_FULL"));
  EXPECT_THAT(outcome, MessageHas("64 files"));
  EXPECT_THAT(outcome, MessageHas(node.path()));
  EXPECT_EQ(node.worker().MemoryOf(kActorUid), "boot") << "the guest was not touched";
}

}  // namespace
}  // namespace torpor::agent
