#pragma once
// One run of the state machine; internal to core. actor_step.cc dispatches events and has what all
// operations share, resume.cc, capture.cc and end.cc hold the operations.

#include <string>
#include <vector>

#include "control/core/actor_step.h"
#include "control/core/node_call.h"
#include "control/core/record_view.h"

namespace torpor::control::core {

class StepRun {
 public:
  StepRun(const Context& context, torpor::v1::ActorRecord& record, Change& change)
      : context_(context), record_(record), change_(change) {}

  void On(const StartVerb& event);
  void On(const CallAnswer& event);
  void On(const Exited& event);
  void On(const HostLost& event);
  void On(const LocalLost& event);
  void On(const CacheUnwanted& event);
  void On(const ObjectDeleted& event);
  void On(const Tick& event);
  void On(const Recover& event);

 private:
  using State = ateapi::ActorState;

  // ---- shared ----
  std::string traceparent_;  // of the verb that this step starts
  State state() const { return record_.actor().status().state(); }
  void SetState(State state);
  // Opens an operation that brings the actor to `through`; ids and times are filled.
  torpor::v1::ActorOperation& Begin(torpor::v1::Verb verb, State through,
                                    const std::string& trigger, torpor::v1::OperationStep step,
                                    Duration timeout, WallTime asked = {});
  void SetStep(torpor::v1::OperationStep step);
  // Closes the operation: report, answer, last_error.
  void End(const Status& status, bool place_again = false);
  // The operation is ended by another one.
  void Supersede(const std::string& by);
  torpor::v1::Event& AddEvent(const std::string& type, torpor::v1::Event::Severity severity);
  // A call to `node`, with op id and header; the caller sets the request first.
  torpor::v1::NodeCall NewCall(torpor::v1::NodeCall call, const std::string& node,
                               Duration timeout);
  void SendOperationCall(torpor::v1::NodeCall call);
  // ---- legs of the control plane in the report, phases.cc ----
  WallTime Time() const;
  // Milliseconds since the operation began, never negative.
  double SinceStart(WallTime time) const;
  torpor::v1::Phase& AddLeg(const std::string& name, WallTime from, WallTime to);
  // It lasts until the call that this step sends has left.
  void OpenLeg(const std::string& name, WallTime from);
  // An answered call ends the open leg; then come the phases of the node.
  void AddPhases(const torpor::v1::NodeCall& call, const torpor::v1::Operation& operation,
                 const CallAnswer& answer);
  void ReleaseWorker();
  // The step is tried again later. `told`: callers that wait are answered now.
  void RetryLater(const Status& error, Duration cap, bool tell);
  void CallDue(torpor::v1::NodeCall& call);
  void OperationAnswered(const CallOutcome& outcome, const torpor::v1::NodeCall& call);

  // ---- resume ----
  void StartResume(const StartVerb& event);
  Status PickSources(scheduler::Request& request, std::vector<torpor::v1::SnapshotSource>& sources,
                     std::string& local_node) const;
  // What of the snapshot an activation from any of `sources` brings back; unset without sources.
  torpor::v1::Fidelity RestoredFidelity(const std::vector<torpor::v1::SnapshotSource>& sources,
                                        bool& narrowed) const;
  void StartAnswered(const CallOutcome& outcome, const torpor::v1::NodeCall& call);
  // Takes the source that the node used into the record.
  void NoteSource(const torpor::v1::NodeCall& call, const torpor::v1::StartResult& result);
  // No copy of the generation that it was to start from could be read.
  void NoteDamage(const Status& error, const torpor::v1::NodeCall& call);
  // The start failed because the place that was chosen for it is gone, and nothing of it is left.
  bool MayPlaceAgain(const CallOutcome& outcome);

  // ---- pause, suspend ----
  void StartCapture(const StartVerb& event);
  void SuspendPaused(const StartVerb& event);
  Status CheckFidelity(torpor::v1::Fidelity& fidelity) const;
  void CaptureAnswered(const CallOutcome& outcome);
  void NoteCpu(const torpor::v1::SnapshotMeta& meta, torpor::v1::GenerationRecord& generation);
  void BeginUpload();
  void UploadAnswered(const CallOutcome& outcome);
  void FinishSuspend();
  void CompleteUpload(int64_t generation, const torpor::v1::UploadResult& result);
  void BackgroundUploadAnswered(int index, const CallOutcome& outcome);
  // Nothing of an upload to that generation stays but garbage.
  void DropUpload(int64_t generation, const torpor::v1::NodeCall* call);
  void PruneLocal(int64_t older_than);
  void PruneDurable();
  void DropGenerationsWithoutStorage();

  // ---- crash, revert, delete ----
  void Crash(const std::string& reason, const std::string& message, Code code);
  bool MayRevertByPolicy();
  void StartRevert(const std::string& trigger, WallTime asked = {});
  void StartRollback(const StartVerb& event);
  // `target`: the generation of a rollback; 0 = the newest durable one that can be read.
  void BeginRevert(torpor::v1::Verb verb, const std::string& trigger, WallTime asked,
                   int64_t target);
  void FinishRevert();
  void GiveUp(int64_t generation, const std::string& why);
  void StartDelete(bool any_state, WallTime asked);
  void BeginDeleteObjects();
  void FinishDelete();
  // The node that may hold the sandbox, local snapshots or directories of the actor.
  std::string HostNode() const;
  // Ends the sandbox on the host; false when there is nothing to ask or nobody to be asked, who is
  // fenced then.
  bool SendStop(bool delete_local);
  // That node does not answer: it has to register anew, and what a delete leaves there is removed
  // then.
  void LeaveForNode(const std::string& node);
  void AbandonUploads();
  void Terminated(const CallOutcome& outcome);
  void JudgePendingExit();
  void GarbageLocal(const std::string& node, const std::vector<std::string>& names);
  void GarbageUri(const std::string& uri, const torpor::v1::NodeCall* upload);
  void GarbageStop(const std::string& node, const std::string& worker_uid, bool delete_local);

  const Context& context_;
  torpor::v1::ActorRecord& record_;
  Change& change_;
  // The generation that this step has found to be damaged; 0 = none.
  int64_t damaged_ = 0;
  // When the answer came that this step is about.
  WallTime received_{};
};

}  // namespace torpor::control::core
