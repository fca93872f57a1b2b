// NodeAgent::Recover: observes what is there, asks PlanRecovery, executes.

#include <fmt/format.h>

#include "agent/node_agent.h"
#include "agent/steps.h"
#include "base/log.h"
#include "model/reasons.h"

namespace torpor::agent {
namespace {

using torpor::v1::Operation;

constexpr Duration kAskTimeout = std::chrono::seconds(2);
// Operations taken over get this long; their callers have given up or ask again anyway.
constexpr Duration kTakenOverTimeout = std::chrono::minutes(10);
constexpr Duration kStopTimeout = std::chrono::minutes(1);

Status Interrupted(std::string_view what) {
  return Fail(
      reasons::kNodeUnreachable,
      fmt::format("the node agent was restarted during the {}; nothing of it remains", what));
}

std::string WorkerOf(const torpor::v1::JournalRecord& accepted) {
  if (accepted.has_start()) return accepted.start().worker_uid();
  if (accepted.has_capture()) return accepted.capture().worker_uid();
  return "";
}

}  // namespace

Status NodeAgent::Recover() {
  RETURN_IF_ERROR(operations_.Load());
  RETURN_IF_ERROR(images_.Recover());
  AwaitWorkers();
  RecoveryInput input = Observe();
  for (const RecoveryAction& action : PlanRecovery(input)) {
    core_.metrics.recovery_actions.Add({RecoveryName(action.kind)});
    Execute(action, input);
  }
  ASSIGN_OR_RETURN(std::vector<std::string> uids, core_.dirs->ListActors());
  for (const std::string& uid : uids) {
    for (const std::string& name : snapshots_.WithoutSums(uid)) sums_.Add(uid, name);
  }
  janitor_.Run([dirs = core_.dirs] {
    Status status = dirs->SweepAll();
    if (!status.ok()) LogWarning("sweep", {{"error", std::string(status.message())}});
  });
  return OkStatus();
}

void NodeAgent::AwaitWorkers() {
  std::set<std::string> wanted;
  for (const OpenOperation& open : operations_.Open()) wanted.insert(WorkerOf(open.accepted));
  auto uids = core_.dirs->ListActors();
  if (uids.ok()) {
    for (const std::string& uid : *uids) {
      auto record = core_.dirs->ReadRunning(uid);
      if (record.ok()) wanted.insert(record->worker_uid());
    }
  }
  const MonotonicTime deadline = core_.clock->Now() + options_.unreachable_max;
  for (;;) {
    uint64_t seen = core_.workers->version();
    core_.workers->Refresh(kAskTimeout);
    bool all = true;
    for (const WorkerSlot& slot : core_.workers->All()) {
      if (wanted.count(slot.info.worker_uid()) > 0 && !slot.info.ready()) all = false;
    }
    if (all || core_.clock->Now() >= deadline) return;
    // Ends early when a worker registers.
    core_.workers->WaitForChange(
        seen + 1,
        std::min<MonotonicTime>(deadline, core_.clock->Now() + std::chrono::milliseconds(200)));
  }
}

RecoveryInput NodeAgent::Observe() {
  RecoveryInput input;
  std::set<std::string> resident;
  for (const WorkerSlot& slot : core_.workers->All()) {
    auto list = slot.client->ListWorkloads(kAskTimeout);
    if (!list.ok()) continue;
    for (torpor::v1::Resident item : list->residents()) {
      item.set_worker_uid(slot.info.worker_uid());
      resident.insert(item.actor_uid());
      auto record = core_.dirs->ReadRunning(item.actor_uid());
      if (record.ok() && record->worker_uid() == slot.info.worker_uid()) {
        input.recorded.insert(item.actor_uid());
      }
      input.residents.push_back(std::move(item));
    }
  }
  for (OpenOperation& open : operations_.Open()) {
    ObservedOperation observed;
    observed.resident = resident.count(open.actor_uid) > 0;
    observed.open = std::move(open);
    const auto& accepted = observed.open.accepted;
    bool asked = observed.open.last_step == "START" || observed.open.last_step == "INTENT" ||
                 observed.open.last_step == "CHECK" || observed.open.last_step == "COMMIT";
    auto worker = core_.workers->Find(WorkerOf(accepted));
    if (asked && worker.ok()) {
      auto answer = AskUntilKnown(
          accepted.op_id(), core_.clock->Now() + kTakenOverTimeout, core_.clock,
          [&](const torpor::v1::GetOperationRequest& get, Duration timeout) {
            return worker->client->GetOperation(get, timeout);
          },
          options_.unreachable_max);
      if (answer.ok() && answer->state() != Operation::STATE_RUNNING) {
        observed.worker_operation = *std::move(answer);
      }
    }
    if (accepted.has_capture()) ObserveCapture(accepted.capture(), &observed);
    input.operations.push_back(std::move(observed));
  }
  return input;
}

void NodeAgent::ObserveCapture(const torpor::v1::CaptureActorRequest& request,
                               ObservedOperation* out) {
  const std::string& uid = request.actor().uid();
  auto committed =
      snapshots_.Verify(request.actor(), request.snapshot_name(), request.op().generation());
  out->committed = committed.ok();
  auto prepared = snapshots_.ReadPrepared(uid);
  if (!prepared.ok() || prepared->meta.generation() != request.op().generation() ||
      prepared->boot_id != options_.boot_id) {
    return;
  }
  google::protobuf::RepeatedPtrField<torpor::v1::SnapshotFile> files;
  for (const auto& file : prepared->files) *files.Add() = file.file;
  out->prepared = snapshots_.CheckCapture(uid, files).ok();
}

void NodeAgent::Execute(const RecoveryAction& action, const RecoveryInput& input) {
  if (action.op_id.empty()) {
    for (const torpor::v1::Resident& resident : input.residents) {
      if (resident.actor_uid() == action.actor_uid) residents_.Set(resident);
    }
    if (action.kind == RecoveryKind::kAdopt) return;
    LogWarning("a sandbox that nothing here knows is stopped", {{"actor", action.actor_uid}});
    Status status = StopResident(action.actor_uid);
    if (!status.ok()) LogError("orphan", {{"error", std::string(status.message())}});
    return;
  }
  auto observed = std::find_if(
      input.operations.begin(), input.operations.end(),
      [&](const ObservedOperation& o) { return o.open.accepted.op_id() == action.op_id; });
  std::shared_ptr<Op> op = operations_.Adopt(action.op_id, kTakenOverTimeout);
  if (observed == input.operations.end() || op == nullptr) return;
  const auto& accepted = observed->open.accepted;
  LogInfo(
      "operation taken over",
      {{"op", action.op_id}, {"method", accepted.method()}, {"step", observed->open.last_step}});
  if (action.kind == RecoveryKind::kRunAgain) {
    if (accepted.has_upload()) return RunAgain(op, accepted.upload(), RunUpload);
    if (accepted.has_stop()) return RunAgain(op, accepted.stop(), RunStop);
    if (accepted.has_delete_local()) return RunAgain(op, accepted.delete_local(), RunDeleteLocal);
  }
  Operation outcome;
  outcome.set_state(Operation::STATE_SUCCEEDED);
  Status status = ExecuteOperation(action, *observed, *op, &outcome);
  if (!status.ok()) {
    outcome.Clear();
    outcome.set_state(Operation::STATE_FAILED);
    *outcome.mutable_error() = ToRpcStatus(status);
  }
  operations_.Finish(op, std::move(outcome));
}

template <typename Request>
void NodeAgent::RunAgain(std::shared_ptr<Op> op, Request request, Steps<Request> steps) {
  background_.Run([this, op = std::move(op), request = std::move(request), steps] {
    Operation outcome;
    outcome.set_state(Operation::STATE_SUCCEEDED);
    Status status = steps(core_, *op, request, &outcome);
    if (!status.ok()) {
      outcome.Clear();
      outcome.set_state(Operation::STATE_FAILED);
      *outcome.mutable_error() = ToRpcStatus(status);
    }
    operations_.Finish(op, std::move(outcome));
  });
}

Status NodeAgent::ExecuteOperation(const RecoveryAction& action, const ObservedOperation& observed,
                                   Op& op, Operation* outcome) {
  const auto& accepted = observed.open.accepted;
  const std::string& uid = action.actor_uid;
  switch (action.kind) {
    case RecoveryKind::kFinishStart: {
      torpor::v1::Resident resident;
      resident.set_actor_uid(uid);
      resident.set_generation(op.generation());
      resident.set_worker_uid(accepted.start().worker_uid());
      resident.set_address(observed.worker_operation->start().address());
      residents_.Set(resident);
      *outcome->mutable_start() = observed.worker_operation->start();
      return OkStatus();
    }
    case RecoveryKind::kUndoStart: {
      torpor::v1::OpHeader header = accepted.start().op();
      header.set_op_id(DeriveOpId(action.op_id, "undo"));
      Status stopped = StopInWorker(core_, uid, accepted.start().worker_uid(), header, Duration(0),
                                    core_.clock->Now() + kStopTimeout);
      if (stopped.ok()) stopped = core_.dirs->Reset(uid, core_.clock->WallNow());
      Status status = stopped.ok() ? Interrupted("start") : stopped;
      AddMetadata(status, kGuestRan, observed.open.last_step == "START" ? "true" : "false");
      return status;
    }
    case RecoveryKind::kUndoCapture:
      (void)core_.dirs->DropCapture(uid, core_.clock->WallNow()).ok();  // debris for the sweep
      return WithGuest(Interrupted("capture"), observed.resident);
    case RecoveryKind::kFinishCapture:
      return FinishCapture(core_, op, accepted.capture(), observed.worker_operation->capture(),
                           outcome);
    case RecoveryKind::kCommitPrepared: {
      ASSIGN_OR_RETURN(snapshot::Manifest manifest, snapshots_.ReadPrepared(uid));
      RETURN_IF_ERROR(op.Step("COMMIT", /*may_stop=*/false));
      RETURN_IF_ERROR(snapshots_.Commit(uid, accepted.capture().snapshot_name(), manifest));
      return ReportCommitted(core_, accepted.capture(), manifest, outcome);
    }
    case RecoveryKind::kReportCommitted: {
      ASSIGN_OR_RETURN(snapshot::Manifest manifest,
                       snapshots_.Read(uid, accepted.capture().snapshot_name()));
      return ReportCommitted(core_, accepted.capture(), manifest, outcome);
    }
    case RecoveryKind::kCrashed: {
      (void)core_.dirs->DropCapture(uid, core_.clock->WallNow()).ok();  // debris for the sweep
      Status status =
          observed.worker_operation
              ? OutcomeStatus(*observed.worker_operation)
              : Fail(reasons::kWorkerRestarted,
                     "agent and worker ended during the capture, which is not complete");
      return WithGuest(std::move(status), false);
    }
    default:
      return Fail(reasons::kInternal, "no way to take this operation over");
  }
}

}  // namespace torpor::agent
