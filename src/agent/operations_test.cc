#include "agent/operations.h"

#include <thread>

#include <gtest/gtest.h>

#include "agent/testing/test_node.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;

TEST(OperationsTest, RepeatedIdsGetTheFirstOutcome) {
  TestNode node;
  auto request = node.StartRequest(1);
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(request)));
  // Another deadline, trace and lease are still the same request.
  request.mutable_op()->mutable_timeout()->set_seconds(7);
  request.mutable_op()->set_traceparent("00-x");
  request.mutable_op()->set_node_lease_id("other");
  auto again = node.agent().StartActor(request);
  ASSERT_OK(TestNode::Outcome(again));
  EXPECT_EQ(again->start().address(), "unix:/door.sock");
  EXPECT_EQ(node.worker().starts(), 1);
}

TEST(OperationsTest, RepeatedIdsWithAnotherBodyOrMethodAreRefused) {
  TestNode node;
  auto request = node.StartRequest(1);
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(request)));
  auto other = request;
  other.mutable_spec()->set_memory_bytes(1);
  EXPECT_THAT(node.agent().StartActor(other),
              HasReason(Code::kInvalidArgument, "REQUEST_ID_REUSED"));
  auto stop = node.StopRequest(1);
  stop.mutable_op()->set_op_id(request.op().op_id());
  EXPECT_THAT(node.agent().StopActor(stop), HasReason(Code::kInvalidArgument, "REQUEST_ID_REUSED"));
}

TEST(OperationsTest, EveryMethodIsFencedByLeaseAndGeneration) {
  TestNode node;
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(5))));
  auto refused = [&](auto call, auto request) {
    request.mutable_op()->set_generation(4);
    auto stale = call(request);
    EXPECT_THAT(stale, HasReason(Code::kFailedPrecondition, "STALE_GENERATION"));
    EXPECT_EQ(MetadataOf(stale.status())["highest"], "5");
    request.mutable_op()->set_generation(5);
    request.mutable_op()->set_node_lease_id("old");
    EXPECT_THAT(call(request), HasReason(Code::kFailedPrecondition, "STALE_LEASE"));
  };
  NodeAgent& agent = node.agent();
  refused([&](const auto& r) { return agent.StartActor(r); }, node.StartRequest(1));
  refused([&](const auto& r) { return agent.CaptureActor(r); }, node.CaptureRequest(1, "s"));
  refused([&](const auto& r) { return agent.UploadSnapshot(r); },
          node.UploadRequest(1, "s", "file:///x"));
  refused([&](const auto& r) { return agent.StopActor(r); }, node.StopRequest(1));
  torpor::v1::DeleteLocalSnapshotsRequest remove;
  *remove.mutable_op() = node.Header(1);
  refused([&](const auto& r) { return agent.DeleteLocalSnapshots(r); }, remove);
  EXPECT_TRUE(node.worker().Hosts(kActorUid));
}

TEST(OperationsTest, AnIdGivenUpNeverStarts) {
  TestNode node;
  auto request = node.StartRequest(1);
  torpor::v1::GetOperationRequest get;
  get.set_op_id(request.op().op_id());
  EXPECT_THAT(node.agent().GetOperation(get), HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
  get.set_refuse_if_unknown(true);
  EXPECT_THAT(node.agent().GetOperation(get), HasReason(Code::kNotFound, "OPERATION_NOT_FOUND"));
  EXPECT_THAT(node.agent().StartActor(request), HasReason(Code::kAborted, "SUPERSEDED"));
  node.NewAgent();
  EXPECT_THAT(node.agent().StartActor(request), HasReason(Code::kAborted, "SUPERSEDED"));
  EXPECT_EQ(node.worker().starts(), 0);
}

// Holds the agent at a step of an operation while the test does something else.
class Gate : public JournalObserver {
 public:
  explicit Gate(std::string step) : step_(std::move(step)) {}
  void BeforeAppend(const torpor::v1::JournalRecord&) override {}
  void AfterAppend(const torpor::v1::JournalRecord& record) override {
    MutexLock lock(&mu_);
    if (record.step() != step_ || passed_) return;
    passed_ = true;
    changed_.SignalAll();
    while (!open_) changed_.Wait(&mu_);
  }
  void WaitUntilReached() {
    MutexLock lock(&mu_);
    while (!passed_) changed_.Wait(&mu_);
  }
  void Open() {
    MutexLock lock(&mu_);
    open_ = true;
    changed_.SignalAll();
  }

 private:
  const std::string step_;
  Mutex mu_;
  CondVar changed_;
  bool passed_ GUARDED_BY(mu_) = false;
  bool open_ GUARDED_BY(mu_) = false;
};

TEST(OperationsTest, OneOperationPerActorAndRepeatedIdsJoin) {
  Gate gate("PREPARE");
  TestNode node(&gate);
  auto request = node.StartRequest(1);
  StatusOr<Operation> first = Operation();
  StatusOr<Operation> joined = Operation();
  std::thread runs([&] { first = node.agent().StartActor(request); });
  gate.WaitUntilReached();
  EXPECT_THAT(node.agent().StopActor(node.StopRequest(1)),
              HasReason(Code::kAborted, "OPERATION_IN_PROGRESS"));
  torpor::v1::GetOperationRequest get;
  get.set_op_id(request.op().op_id());
  auto now = node.agent().GetOperation(get);
  ASSERT_OK(now);
  EXPECT_EQ(now->state(), Operation::STATE_RUNNING);
  EXPECT_EQ(now->step(), "PREPARE");
  std::thread joins([&] { joined = node.agent().StartActor(request); });
  gate.Open();
  runs.join();
  joins.join();
  ASSERT_OK(TestNode::Outcome(first));
  ASSERT_OK(TestNode::Outcome(joined));
  EXPECT_EQ(node.worker().starts(), 1);
}

TEST(OperationsTest, AHigherGenerationEndsOlderWorkAtItsNextSafeStep) {
  Gate gate("RESET");
  TestNode node(&gate);
  StatusOr<Operation> first = Operation();
  std::thread runs([&] { first = node.agent().StartActor(node.StartRequest(1)); });
  gate.WaitUntilReached();
  EXPECT_THAT(node.agent().StopActor(node.StopRequest(2)),
              HasReason(Code::kAborted, "OPERATION_IN_PROGRESS"));
  gate.Open();
  runs.join();
  EXPECT_THAT(TestNode::Outcome(first), HasReason(Code::kAborted, "SUPERSEDED"));
  EXPECT_EQ(node.worker().starts(), 0);
  ASSERT_OK(TestNode::Outcome(node.agent().StopActor(node.StopRequest(2))));
}

TEST(OperationsTest, ACheckpointedSandboxIsCommittedWhateverComes) {
  Gate gate("INTENT");
  TestNode node(&gate);
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(1))));
  StatusOr<Operation> capture = Operation();
  std::thread runs([&] { capture = node.agent().CaptureActor(node.CaptureRequest(2, "s2")); });
  gate.WaitUntilReached();
  EXPECT_THAT(node.agent().StopActor(node.StopRequest(3)),
              HasReason(Code::kAborted, "OPERATION_IN_PROGRESS"));
  gate.Open();
  runs.join();
  ASSERT_OK(TestNode::Outcome(capture));
  EXPECT_TRUE(node.HasLocal("s2", 2));
}

TEST(OperationsTest, OutOfTimeBeforeThePointOfNoReturn) {
  TestNode node;
  auto request = node.StartRequest(1);
  request.mutable_op()->mutable_timeout()->set_seconds(0);
  request.mutable_op()->mutable_timeout()->set_nanos(1);
  EXPECT_THAT(TestNode::Outcome(node.agent().StartActor(request)),
              HasCode(Code::kDeadlineExceeded));
  EXPECT_EQ(node.worker().starts(), 0);
}

TEST(OperationsTest, OldOutcomesAreForgottenOnlyAfterAcknowledgement) {
  os::TempDir temp;
  FakeClock clock;
  OperationTable table(&temp.dir(), "boot", &clock, nullptr);
  table.SetLease("lease");
  auto run = [&](const std::string& id) {
    OperationTable::Request request;
    request.actor_uid = kActorUid;
    request.accepted.set_kind(torpor::v1::JournalRecord::KIND_ACCEPTED);
    request.accepted.set_op_id(id);
    request.accepted.mutable_stop();
    request.timeout = std::chrono::seconds(1);
    request.lease_id = "lease";
    auto admission = table.Admit(request);
    ASSERT_OK(admission);
    Operation outcome;
    outcome.set_state(Operation::STATE_SUCCEEDED);
    table.Finish(admission->op, outcome);
  };
  run("a");
  run("b");
  table.Acknowledge("a");
  auto known = [&](const std::string& id) {
    torpor::v1::GetOperationRequest get;
    get.set_op_id(id);
    return table.Get(get).ok();
  };
  auto gone = [](const std::string&) { return false; };
  table.DropExpired(gone);
  EXPECT_TRUE(known("a"));
  clock.Advance(std::chrono::hours(25));
  table.DropExpired(gone);
  EXPECT_FALSE(known("a"));
  EXPECT_TRUE(known("b"));
  EXPECT_EQ(table.Unacknowledged().size(), 1U);
  table.Acknowledge("b");
  clock.Advance(std::chrono::hours(25));
  table.DropExpired(gone);
  EXPECT_TRUE(temp.dir().List()->empty());
}

}  // namespace
}  // namespace torpor::agent
