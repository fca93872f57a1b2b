// The agent lives and a peer dies: worker or mover, before and after every journal record of every
// operation, and in the middle of what they were asked for.

#include <set>

#include <fmt/format.h>

#include "agent/testing/strike_point.h"
#include "agent/testing/test_node.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;

// What each operation does, and what must hold after it ended and the peer is back.
struct PeerCase {
  const char* name;
  std::function<void(TestNode&)> prepare;
  std::function<StatusOr<Operation>(TestNode&)> run;
  std::function<void(TestNode&, const Status& outcome)> check;
};

const std::vector<PeerCase>& PeerCases() {
  static const auto* cases = new std::vector<PeerCase>{
      {"StartCold", [](TestNode&) {},
       [](TestNode& node) { return node.agent().StartActor(node.StartRequest(1)); },
       [](TestNode& node, const Status&) {
         ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(20))));
       }},
      {"StartLocal", StartAndPause,
       [](TestNode& node) { return node.agent().StartActor(node.StartLocal(3, "s2", 2)); },
       [](TestNode& node, const Status&) { ExpectResumes(node, "s2", 2, "boot+"); }},
      {"StartDurable",
       [](TestNode& node) {
         StartAndPause(node);
         ASSERT_OK(TestNode::Outcome(
             node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"))));
       },
       [](TestNode& node) { return node.agent().StartActor(StartDurable(node, 3)); },
       [](TestNode& node, const Status&) {
         ASSERT_OK(TestNode::Outcome(node.agent().StartActor(StartDurable(node, 20))));
         EXPECT_EQ(node.worker().MemoryOf(kActorUid), "boot+");
       }},
      {"Capture", StartPauseResume,
       [](TestNode& node) { return node.agent().CaptureActor(node.CaptureRequest(4, "s4")); },
       [](TestNode& node, const Status& outcome) {
         EXPECT_TRUE(node.HasLocal("s2", 2));
         EXPECT_EQ(node.HasLocal("s4", 4), outcome.ok()) << outcome;
         if (outcome.ok()) return ExpectResumes(node, "s4", 4, "boot++");
         EXPECT_EQ(MetadataOf(outcome)[kGuestAlive], "false") << outcome;
         ExpectResumes(node, "s2", 2, "boot+");
       }},
      {"Upload", StartAndPause,
       [](TestNode& node) {
         return node.agent().UploadSnapshot(node.UploadRequest(2, "s2", "file:///x/s2"));
       },
       [](TestNode& node, const Status& outcome) {
         if (outcome.ok()) {
           EXPECT_TRUE(node.mover().Has("file:///x/s2"));
         }
         // A failed one is asked for again under another id, and has cost nothing.
         ASSERT_OK(TestNode::Outcome(
             node.agent().UploadSnapshot(node.UploadRequest(3, "s2", "file:///x/s2"))));
         ExpectResumes(node, "s2", 2, "boot+");
       }},
      {"Stop", StartPauseResume,
       [](TestNode& node) { return node.agent().StopActor(node.StopRequest(4)); },
       [](TestNode& node, const Status& outcome) {
         // Without an answer nobody knows that it is gone: the caller asks again.
         if (!outcome.ok()) {
           ASSERT_OK(TestNode::Outcome(node.agent().StopActor(node.StopRequest(5))));
         }
         EXPECT_FALSE(node.worker().Hosts(kActorUid));
         ExpectResumes(node, "s2", 2, "boot+");
       }},
      {"StopAndDelete", StartPauseResume,
       [](TestNode& node) {
         auto request = node.StopRequest(4);
         request.set_delete_local_snapshots(true);
         return node.agent().StopActor(request);
       },
       [](TestNode& node, const Status& outcome) {
         if (!outcome.ok()) {
           auto again = node.StopRequest(5);
           again.set_delete_local_snapshots(true);
           ASSERT_OK(TestNode::Outcome(node.agent().StopActor(again)));
         }
         EXPECT_FALSE(node.worker().Hosts(kActorUid));
         EXPECT_FALSE(node.dirs().OpenActor(kActorUid).ok());
       }}};
  return *cases;
}

class PeerDiesTest : public testing::TestWithParam<PeerCase> {
 protected:
  // Strikes at every point in turn, with `strike` on the operation's thread and `heal` after it.
  void Everywhere(const std::function<void(TestNode&)>& strike,
                  const std::function<void(TestNode&)>& heal) {
    for (int at = 0;; ++at) {
      SCOPED_TRACE(fmt::format("strike point {}", at));
      StrikePoint point(at);
      TestNode node(&point);
      GetParam().prepare(node);
      point.Arm([&] { strike(node); });
      auto operation = GetParam().run(node);
      const bool struck = point.struck();
      point.Arm(nullptr);
      if (!struck) {
        EXPECT_GE(at, 4);  // before and after ACCEPTED and OUTCOME at least
        return;
      }
      ASSERT_OK(operation);
      EXPECT_NE(operation->state(), Operation::STATE_RUNNING);
      heal(node);
      GetParam().check(node, TestNode::Outcome(operation));
      ASSERT_LT(at, 100);
    }
  }
};

class WorkerDiesTest : public PeerDiesTest {};
class MoverDiesTest : public PeerDiesTest {};

TEST_P(WorkerDiesTest, GoneForAWhile) {
  Everywhere([](TestNode& node) { node.worker().Kill(); },
             [](TestNode& node) {
               node.worker().Restart();
               node.RegisterWorker();
             });
}

TEST_P(WorkerDiesTest, ReplacedAtOnce) {
  Everywhere(
      [](TestNode& node) {
        node.worker().Kill();
        node.worker().Restart();
        node.RegisterWorker();
      },
      [](TestNode&) {});
}

// While it does what it was asked for: nothing of it is done, or everything and nobody was told.
TEST_P(WorkerDiesTest, InTheMiddleOfTheCall) {
  for (bool after_work : {false, true}) {
    SCOPED_TRACE(after_work);
    TestNode node;
    GetParam().prepare(node);
    node.worker().DieInCall(after_work);
    auto operation = GetParam().run(node);
    ASSERT_OK(operation);
    EXPECT_EQ(operation->state(), Operation::STATE_FAILED) << operation->ShortDebugString();
    node.worker().Restart();
    node.RegisterWorker();
    GetParam().check(node, TestNode::Outcome(operation));
  }
}

TEST_P(MoverDiesTest, GoneForAWhile) {
  Everywhere([](TestNode& node) { node.mover().Kill(); },
             [](TestNode& node) { node.mover().Restart(); });
}

TEST_P(MoverDiesTest, ReplacedAtOnce) {
  Everywhere(
      [](TestNode& node) {
        node.mover().Kill();
        node.mover().Restart();
      },
      [](TestNode&) {});
}

// Those that ask this peer for anything.
std::vector<PeerCase> Cases(const std::set<std::string>& names) {
  std::vector<PeerCase> out;
  for (const PeerCase& c : PeerCases()) {
    if (names.count(c.name) > 0) out.push_back(c);
  }
  return out;
}

INSTANTIATE_TEST_SUITE_P(, WorkerDiesTest,
                         testing::ValuesIn(Cases({"StartCold", "StartLocal", "StartDurable",
                                                  "Capture", "Stop", "StopAndDelete"})),
                         [](const auto& info) { return info.param.name; });
INSTANTIATE_TEST_SUITE_P(, MoverDiesTest,
                         testing::ValuesIn(Cases({"StartCold", "StartDurable", "Upload"})),
                         [](const auto& info) { return info.param.name; });

// In the middle of what it was asked for: before its work, or after it with the answer lost.
TEST(MoverDiesDuringACallTest, BeforeOrAfterItsWork) {
  for (bool after_work : {false, true}) {
    SCOPED_TRACE(after_work);
    TestNode node;
    node.mover().DieIn("PullImage", after_work);
    EXPECT_FALSE(TestNode::Outcome(node.agent().StartActor(node.StartRequest(1))).ok());
    node.mover().Restart();
    ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(2))));
    ASSERT_OK(TestNode::Outcome(node.agent().CaptureActor(node.CaptureRequest(3, "s2"))));
    node.mover().DieIn("Upload", after_work);
    EXPECT_FALSE(
        TestNode::Outcome(node.agent().UploadSnapshot(node.UploadRequest(3, "s2", "file:///x/s2")))
            .ok());
    EXPECT_TRUE(node.HasLocal("s2", 3));
    node.mover().Restart();
    ASSERT_OK(TestNode::Outcome(
        node.agent().UploadSnapshot(node.UploadRequest(3, "s2", "file:///x/s2"))));
    auto start = StartDurable(node, 4);
    start.mutable_sources(0)->set_generation(3);
    node.mover().DieIn("Fetch", after_work);
    EXPECT_FALSE(TestNode::Outcome(node.agent().StartActor(start)).ok());
    EXPECT_TRUE(node.dirs().root().List(NodeDirs::ActorPath(kActorUid, kRestoreDir))->empty());
    node.mover().Restart();
    start.mutable_op()->set_op_id(node.ids().NewUuid());
    start.mutable_op()->set_generation(5);
    ASSERT_OK(TestNode::Outcome(node.agent().StartActor(start)));
    EXPECT_EQ(node.worker().MemoryOf(kActorUid), "boot+");
  }
}

}  // namespace
}  // namespace torpor::agent
