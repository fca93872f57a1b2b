#include "agent/recovery.h"

#include <gtest/gtest.h>

#include "agent/steps.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;

constexpr char kUid[] = "11111111-1111-4111-8111-111111111111";

ObservedOperation Start(const std::string& step) {
  ObservedOperation observed;
  observed.open.actor_uid = kUid;
  observed.open.last_step = step;
  observed.open.accepted.set_op_id("op");
  observed.open.accepted.mutable_start();
  return observed;
}

ObservedOperation Capture(const std::string& step) {
  ObservedOperation observed = Start(step);
  observed.open.accepted.mutable_capture();
  return observed;
}

Operation Ended(Operation::State state) {
  Operation operation;
  operation.set_state(state);
  return operation;
}

Operation Failed(bool alive) {
  Operation operation = Ended(Operation::STATE_FAILED);
  *operation.mutable_error() =
      ToRpcStatus(Fail(reasons::kRuntimeFailed, "x", {{kGuestAlive, alive ? "true" : "false"}}));
  return operation;
}

// The only action for the operation.
RecoveryKind Plan(ObservedOperation observed) {
  RecoveryInput input;
  input.operations.push_back(std::move(observed));
  auto actions = PlanRecovery(input);
  EXPECT_EQ(actions.size(), 1U);
  EXPECT_EQ(actions[0].op_id, "op");
  return actions[0].kind;
}

TEST(PlanRecoveryTest, OpenStartThatRunsIsFinished) {
  ObservedOperation observed = Start("START");
  observed.resident = true;
  observed.worker_operation = Ended(Operation::STATE_SUCCEEDED);
  EXPECT_EQ(Plan(observed), RecoveryKind::kFinishStart);
}

TEST(PlanRecoveryTest, AnyOtherOpenStartIsUndone) {
  for (const char* step : {"", "STOP", "VERIFY", "RESET", "PREPARE", "RECORD", "START"}) {
    EXPECT_EQ(Plan(Start(step)), RecoveryKind::kUndoStart) << step;
  }
  ObservedOperation listed = Start("START");  // there, but the worker never had this request
  listed.resident = true;
  EXPECT_EQ(Plan(listed), RecoveryKind::kUndoStart);
  ObservedOperation exited = Start("START");
  exited.worker_operation = Ended(Operation::STATE_SUCCEEDED);
  EXPECT_EQ(Plan(exited), RecoveryKind::kUndoStart);
  ObservedOperation failed = Start("START");
  failed.resident = true;
  failed.worker_operation = Ended(Operation::STATE_FAILED);
  EXPECT_EQ(Plan(failed), RecoveryKind::kUndoStart);
}

TEST(PlanRecoveryTest, CaptureBeforeTheIntentIsDropped) {
  for (const char* step : {"", "RESERVE", "MKDIR"}) {
    ObservedOperation observed = Capture(step);
    observed.resident = true;
    EXPECT_EQ(Plan(observed), RecoveryKind::kUndoCapture) << step;
  }
}

TEST(PlanRecoveryTest, CaptureThatTheWorkerHasDoneIsCommitted) {
  for (const char* step : {"INTENT", "CHECK", "COMMIT"}) {
    ObservedOperation observed = Capture(step);
    observed.worker_operation = Ended(Operation::STATE_SUCCEEDED);
    EXPECT_EQ(Plan(observed), RecoveryKind::kFinishCapture) << step;
  }
}

TEST(PlanRecoveryTest, CaptureThatNeverReachedTheWorkerIsUndone) {
  ObservedOperation observed = Capture("INTENT");
  observed.resident = true;
  EXPECT_EQ(Plan(observed), RecoveryKind::kUndoCapture);
}

TEST(PlanRecoveryTest, CaptureThatFailedDependsOnTheGuest) {
  ObservedOperation observed = Capture("INTENT");
  observed.resident = true;
  observed.worker_operation = Failed(true);
  EXPECT_EQ(Plan(observed), RecoveryKind::kUndoCapture);
  observed.worker_operation = Failed(false);
  EXPECT_EQ(Plan(observed), RecoveryKind::kCrashed);
  observed.worker_operation = Failed(true);
  observed.resident = false;
  EXPECT_EQ(Plan(observed), RecoveryKind::kCrashed);
}

TEST(PlanRecoveryTest, CompleteFilesWinOverAnything) {
  ObservedOperation observed = Capture("COMMIT");
  observed.prepared = true;
  EXPECT_EQ(Plan(observed), RecoveryKind::kCommitPrepared);
  observed.committed = true;
  EXPECT_EQ(Plan(observed), RecoveryKind::kReportCommitted);
}

TEST(PlanRecoveryTest, NeitherGuestNorFilesIsACrash) {
  EXPECT_EQ(Plan(Capture("INTENT")), RecoveryKind::kCrashed);
  EXPECT_EQ(Plan(Capture("COMMIT")), RecoveryKind::kCrashed);
}

TEST(PlanRecoveryTest, IdempotentOperationsRunAgain) {
  ObservedOperation upload = Start("UPLOAD");
  upload.open.accepted.mutable_upload();
  EXPECT_EQ(Plan(upload), RecoveryKind::kRunAgain);
  ObservedOperation stop = Start("RESET");
  stop.open.accepted.mutable_stop();
  EXPECT_EQ(Plan(stop), RecoveryKind::kRunAgain);
  ObservedOperation remove = Start("DELETE");
  remove.open.accepted.mutable_delete_local();
  EXPECT_EQ(Plan(remove), RecoveryKind::kRunAgain);
}

torpor::v1::Resident ResidentOf(const std::string& uid) {
  torpor::v1::Resident resident;
  resident.set_actor_uid(uid);
  resident.set_worker_uid("w");
  return resident;
}

TEST(PlanRecoveryTest, ResidentsAreAdoptedOnlyWithARecord) {
  RecoveryInput input;
  input.residents = {ResidentOf("known"), ResidentOf("stray")};
  input.recorded = {"known"};
  EXPECT_EQ(PlanRecovery(input),
            (std::vector<RecoveryAction>{{RecoveryKind::kAdopt, "known", "", "w"},
                                         {RecoveryKind::kStopOrphan, "stray", "", "w"}}));
}

TEST(PlanRecoveryTest, AnOpenOperationAnswersForItsResident) {
  RecoveryInput input;
  input.residents = {ResidentOf(kUid)};
  input.recorded = {kUid};
  input.operations = {Start("RECORD")};
  EXPECT_EQ(PlanRecovery(input).size(), 1U);
  // An undone capture leaves the guest running, so it is adopted.
  ObservedOperation capture = Capture("RESERVE");
  capture.resident = true;
  input.operations = {capture};
  EXPECT_EQ(PlanRecovery(input).size(), 2U);
  EXPECT_EQ(PlanRecovery(input)[1].kind, RecoveryKind::kAdopt);
}

}  // namespace
}  // namespace torpor::agent
