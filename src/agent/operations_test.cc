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

// ---- what stays of an actor that was deleted ----

void AcknowledgeAll(TestNode& node) {
  for (const Operation& operation : node.agent().operations().Unacknowledged()) {
    node.agent().Acknowledged(operation);
  }
}

torpor::v1::StopActorRequest DeleteRequest(TestNode& node, int64_t generation) {
  torpor::v1::StopActorRequest request = node.StopRequest(generation);
  request.set_delete_local_snapshots(true);
  return request;
}

size_t Journals(TestNode& node) { return node.dirs().journals().List()->size(); }

TEST(ForgetTest, B1_NothingStaysOfADeletedActorAndNothingOfItRunsAgain) {
  TestNode node;
  auto start = node.StartRequest(1);
  auto capture = node.CaptureRequest(2, "s2");
  auto remove = DeleteRequest(node, 3);
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(start)));
  ASSERT_OK(TestNode::Outcome(node.agent().CaptureActor(capture)));
  ASSERT_OK(TestNode::Outcome(node.agent().StopActor(remove)));
  // Until the control plane has said that it knows, all are answered as at first.
  EXPECT_EQ(Journals(node), 1U);
  node.NewAgent();
  node.RegisterWorker();
  EXPECT_OK(TestNode::Outcome(node.agent().CaptureActor(capture)));
  EXPECT_OK(TestNode::Outcome(node.agent().StopActor(remove)));
  AcknowledgeAll(node);
  EXPECT_EQ(Journals(node), 0U);
  // Copies that arrive late find the generation of the delete above them.
  EXPECT_THAT(node.agent().StartActor(start),
              HasReason(Code::kFailedPrecondition, "STALE_GENERATION"));
  EXPECT_THAT(node.agent().CaptureActor(capture),
              HasReason(Code::kFailedPrecondition, "STALE_GENERATION"));
  EXPECT_EQ(Journals(node), 0U);
  // The delete itself answers as it did: there is nothing.
  EXPECT_OK(TestNode::Outcome(node.agent().StopActor(remove)));
  AcknowledgeAll(node);
  EXPECT_EQ(Journals(node), 0U);
  // The next agent knows nothing of all this, but has another lease.
  node.NewAgent();
  node.agent().operations().SetLease("the next");
  EXPECT_THAT(node.agent().StartActor(start), HasReason(Code::kFailedPrecondition, "STALE_LEASE"));
  EXPECT_THAT(node.agent().CaptureActor(capture),
              HasReason(Code::kFailedPrecondition, "STALE_LEASE"));
  EXPECT_EQ(node.worker().starts(), 1);
}

TEST(ForgetTest, ManyDeletedActorsLeaveNoBytes) {
  TestNode node;
  for (int i = 0; i < 200; ++i) {
    ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(3 * i + 1))));
    ASSERT_OK(TestNode::Outcome(
        node.agent().CaptureActor(node.CaptureRequest(3 * i + 2, "s" + std::to_string(i)))));
    ASSERT_OK(TestNode::Outcome(node.agent().StopActor(DeleteRequest(node, 3 * i + 3))));
    AcknowledgeAll(node);
    ASSERT_EQ(Journals(node), 0U) << i;
  }
}

TEST(ForgetTest, WhatIsHereOrNotAcknowledgedStays) {
  TestNode node;
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(TestNode::Outcome(node.agent().StopActor(node.StopRequest(2))));
  AcknowledgeAll(node);
  EXPECT_EQ(Journals(node), 1U) << "stopped, not deleted";
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(3))));
  auto remove = DeleteRequest(node, 4);
  ASSERT_OK(TestNode::Outcome(node.agent().StopActor(remove)));
  const auto outcomes = node.agent().operations().Unacknowledged();
  ASSERT_EQ(outcomes.size(), 2U);
  node.agent().Acknowledged(outcomes[1]);
  node.agent().Maintain();
  EXPECT_EQ(Journals(node), 1U) << "the start's outcome is not known there yet";
  EXPECT_OK(TestNode::Outcome(node.agent().StopActor(remove)));
  node.agent().NotWanted(outcomes[0]);
  EXPECT_EQ(Journals(node), 0U);
}

// An agent that ended between the acknowledgement and the removal.
TEST(ForgetTest, WhatAnEarlierAgentLeftGoesWithTheNextTidying) {
  TestNode node;
  ASSERT_OK(TestNode::Outcome(node.agent().StartActor(node.StartRequest(1))));
  ASSERT_OK(TestNode::Outcome(node.agent().StopActor(DeleteRequest(node, 2))));
  for (const Operation& operation : node.agent().operations().Unacknowledged()) {
    node.agent().operations().Acknowledge(operation.op_id());
  }
  EXPECT_EQ(Journals(node), 1U);
  node.NewAgent();
  node.agent().Maintain();
  EXPECT_EQ(Journals(node), 0U);
}

TEST(ForgetTest, TheGenerationOutlivesEveryRequestThatMayStillTravel) {
  os::TempDir temp;
  FakeClock clock;
  OperationTable table(&temp.dir(), "boot", &clock, nullptr);
  table.SetLease("lease");
  auto admit = [&](const std::string& id, int64_t generation) -> Status {
    OperationTable::Request request;
    request.actor_uid = kActorUid;
    request.accepted.set_kind(torpor::v1::JournalRecord::KIND_ACCEPTED);
    request.accepted.set_op_id(id);
    request.accepted.set_generation(generation);
    request.accepted.mutable_stop();
    request.timeout = std::chrono::seconds(1);
    request.lease_id = table.lease();
    auto admission = table.Admit(request);
    if (!admission.ok()) return admission.status();
    Operation outcome;
    outcome.set_state(Operation::STATE_SUCCEEDED);
    table.Finish(admission->op, outcome);
    table.Acknowledge(id);
    return OkStatus();
  };
  auto gone = [](const std::string&) { return false; };
  const auto stale = HasReason(Code::kFailedPrecondition, "STALE_GENERATION");
  ASSERT_OK(admit("a", 5));
  table.Forget(kActorUid, gone);
  clock.Advance(kLateRequestMax - std::chrono::seconds(1));
  table.DropExpired(gone);
  EXPECT_THAT(admit("b", 4), stale);
  clock.Advance(std::chrono::seconds(1));
  table.DropExpired(gone);
  EXPECT_OK(admit("c", 4));
  table.Forget(kActorUid, gone);
  table.SetLease("lease");  // of the same registration
  EXPECT_THAT(admit("d", 3), stale);
  table.SetLease("next");  // nothing that was sent before has this one
  EXPECT_OK(admit("e", 3));
}

}  // namespace
}  // namespace torpor::agent
