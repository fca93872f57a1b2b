#pragma once
// The control plane: every rule of ateapi.Control, torpor.v1.Ops, NodeRegistry and RouterSupport
// that is more than the syntax of a field. Field syntax (names, bounds, unknown fields, "exactly
// one of") is checked by the caller, src/api; existence, states, preconditions, reasons, defaults,
// page tokens are checked here. Nothing here knows gRPC.
//
// Ownership: the store, the snapshot admin, the clock and the id source must outlive it. The
// destructor stops its thread; waiting calls end with UNAVAILABLE `SHUTTING_DOWN`, their operations
// go on with the next ControlPlane over the same store. Threads: every method may be called from
// any thread. Reads take one lock for a moment. Writes are queued to the one writer; a method that
// returns a StatusOr blocks until its change is committed (one store transaction, shared with
// others); never call one from a Done callback. The asynchronous ones never block; `done` is called
// exactly once, possibly before the method returns. A caller that leaves cancels nothing: at
// `CallContext::deadline` (or after Settings::wait_max) `done` gets DEADLINE_EXCEEDED with metadata
// op_id, and the operation goes on. Errors: every one carries an ErrorInfo with a reason of
// model/reasons.h.

#include <functional>
#include <memory>
#include <string>

#include "ateapi/ateapi.pb.h"
#include "base/status.h"
#include "base/time.h"
#include "base/uuid.h"
#include "control/done.h"
#include "control/node_client.h"
#include "control/settings.h"
#include "torpor/v1/node.pb.h"
#include "torpor/v1/ops.pb.h"

namespace torpor::control {

class ActorWatch;
class SnapshotAdmin;
class Store;
class Writer;

struct CallContext {
  MonotonicTime deadline = MonotonicTime::max();
  std::string traceparent;  // of the operation that the call begins; may be empty
};

// Where ReadLogs of an actor goes: the agent of the node that holds its logs.
struct LogSource {
  ateapi::Actor actor;
  std::string node_name;
  std::string agent_address;  // empty: the actor was never on a node, or its node is not registered
};

class ControlPlane {
 public:
  struct Parts {
    Store* store = nullptr;
    SnapshotAdmin* snapshots = nullptr;
    NodeClientFactory node_clients;
    Clock* clock = nullptr;
    IdSource* ids = nullptr;
    // Told each ended operation once its report is committed, on the writer's thread; may be
    // empty. Must not block.
    std::function<void(const std::string& actor_uid, const torpor::v1::OperationReport&)> on_ended;
  };
  // Loads everything from the store, makes the reserved atespace and continues open operations.
  // `threaded = false`: no thread is started; the owner calls RunReady (tests, the simulator).
  static StatusOr<std::unique_ptr<ControlPlane>> Create(Parts parts, Settings settings,
                                                        bool threaded = true);
  ~ControlPlane();
  ControlPlane(const ControlPlane&) = delete;
  ControlPlane& operator=(const ControlPlane&) = delete;

  // ---- ateapi.Control ----
  StatusOr<ateapi::Atespace> CreateAtespace(const ateapi::CreateAtespaceRequest& request);
  StatusOr<ateapi::Atespace> GetAtespace(const ateapi::GetAtespaceRequest& request);
  StatusOr<ateapi::ListAtespacesResponse> ListAtespaces(
      const ateapi::ListAtespacesRequest& request);
  StatusOr<ateapi::Atespace> DeleteAtespace(const ateapi::DeleteAtespaceRequest& request);

  StatusOr<ateapi::ActorTemplate> CreateActorTemplate(
      const ateapi::CreateActorTemplateRequest& request);
  StatusOr<ateapi::ActorTemplate> GetActorTemplate(const ateapi::GetActorTemplateRequest& request);
  StatusOr<ateapi::ListActorTemplatesResponse> ListActorTemplates(
      const ateapi::ListActorTemplatesRequest& request);
  StatusOr<ateapi::ActorTemplate> DeleteActorTemplate(
      const ateapi::DeleteActorTemplateRequest& request);

  StatusOr<ateapi::Actor> CreateActor(const ateapi::CreateActorRequest& request);
  StatusOr<ateapi::Actor> GetActor(const ateapi::GetActorRequest& request);
  StatusOr<ateapi::ListActorsResponse> ListActors(const ateapi::ListActorsRequest& request);
  StatusOr<ateapi::Actor> UpdateActor(const ateapi::UpdateActorRequest& request);
  void DeleteActor(const ateapi::DeleteActorRequest& request, const CallContext& context,
                   Done<ateapi::Actor> done);
  // An actor that is RUNNING is answered at once from one read: no write, no operation.
  void ResumeActor(const ateapi::ResumeActorRequest& request, const CallContext& context,
                   Done<ateapi::ResumeActorResponse> done);
  void PauseActor(const ateapi::PauseActorRequest& request, const CallContext& context,
                  Done<ateapi::PauseActorResponse> done);
  void SuspendActor(const ateapi::SuspendActorRequest& request, const CallContext& context,
                    Done<ateapi::SuspendActorResponse> done);
  void RevertActor(const ateapi::RevertActorRequest& request, const CallContext& context,
                   Done<ateapi::RevertActorResponse> done);

  // Answers when the copy is complete. What cannot be tried again (a damaged source) leaves no tag.
  void CreateTag(const ateapi::CreateTagRequest& request, const CallContext& context,
                 Done<ateapi::Tag> done);
  StatusOr<ateapi::Tag> UpdateTag(const ateapi::UpdateTagRequest& request);
  StatusOr<ateapi::Tag> DeleteTag(const ateapi::DeleteTagRequest& request);
  StatusOr<ateapi::Tag> GetTag(const ateapi::GetTagRequest& request);
  StatusOr<ateapi::ListTagsResponse> ListTags(const ateapi::ListTagsRequest& request);

  StatusOr<ateapi::Worker> GetWorker(const ateapi::GetWorkerRequest& request);
  StatusOr<ateapi::ListWorkersResponse> ListWorkers(const ateapi::ListWorkersRequest& request);
  StatusOr<ateapi::ListWorkerActorAssignmentsResponse> ListWorkerActorAssignments(
      const ateapi::ListWorkerActorAssignmentsRequest& request);
  StatusOr<ateapi::Worker> DrainWorker(const ateapi::DrainWorkerRequest& request);

  // ---- torpor.v1.Ops ----
  void WaitActor(const torpor::v1::WaitActorRequest& request, const CallContext& context,
                 Done<torpor::v1::WaitActorResponse> done);
  // All children or none. An end of this process ends the fork: then there is none.
  void ForkActor(const torpor::v1::ForkActorRequest& request, const CallContext& context,
                 Done<torpor::v1::ForkActorResponse> done);
  void RollbackActor(const torpor::v1::RollbackActorRequest& request, const CallContext& context,
                     Done<torpor::v1::RollbackActorResponse> done);
  StatusOr<torpor::v1::ListEventsResponse> ListEvents(const torpor::v1::ListEventsRequest& request);
  StatusOr<torpor::v1::ExplainActorResponse> ExplainActor(
      const torpor::v1::ExplainActorRequest& request);
  StatusOr<torpor::v1::ListGenerationsResponse> ListGenerations(
      const torpor::v1::ListGenerationsRequest& request);
  StatusOr<torpor::v1::Node> GetNode(const torpor::v1::GetNodeRequest& request);
  StatusOr<torpor::v1::ListNodesResponse> ListNodes(const torpor::v1::ListNodesRequest& request);
  // No idle pause before then, bounded by the actor's policy; 0 ends it.
  StatusOr<torpor::v1::KeepActorAwakeResponse> KeepActorAwake(
      const torpor::v1::KeepActorAwakeRequest& request);
  // Answers at once; GetNode says how far it is.
  StatusOr<torpor::v1::Node> DrainNode(const torpor::v1::DrainNodeRequest& request);
  // Reads everything once; nothing is changed.
  StatusOr<torpor::v1::CheckRecordsResponse> CheckRecords(
      const torpor::v1::CheckRecordsRequest& request);
  // The caller asks the watch for one message after the other; OUT_OF_RANGE RESUME_TOKEN_EXPIRED
  // for every token.
  StatusOr<std::shared_ptr<ActorWatch>> WatchActors(const torpor::v1::WatchActorsRequest& request);
  // For ReadLogs, which the caller streams from the node.
  StatusOr<LogSource> FindLogs(const ateapi::ObjectRef& actor);

  // ---- torpor.v1.NodeRegistry; the caller has checked who the node is ----
  StatusOr<torpor::v1::RegisterNodeResponse> RegisterNode(
      const torpor::v1::RegisterNodeRequest& request);
  StatusOr<torpor::v1::RenewLeaseResponse> RenewLease(const torpor::v1::RenewLeaseRequest& request);
  StatusOr<torpor::v1::ReportOperationResponse> ReportOperation(
      const torpor::v1::ReportOperationRequest& request);
  StatusOr<torpor::v1::ReportActorResponse> ReportActor(
      const torpor::v1::ReportActorRequest& request);
  StatusOr<torpor::v1::ReportUsageResponse> ReportUsage(
      const torpor::v1::ReportUsageRequest& request);
  StatusOr<torpor::v1::ListNodeActorsResponse> ListNodeActors(
      const torpor::v1::ListNodeActorsRequest& request);

  // ---- torpor.v1.RouterSupport; never writes to the store ----
  StatusOr<torpor::v1::ReportActivityResponse> ReportActivity(
      const torpor::v1::ReportActivityRequest& request);
  // These two do.
  StatusOr<torpor::v1::ReportActorResponse> WishIdle(const torpor::v1::IdleWish& wish);
  StatusOr<torpor::v1::ReportActorResponse> WishAwake(const torpor::v1::AwakeWish& wish);

  // Runs queued events and due timers on the calling thread; true when there was something to do.
  // Only without a thread of its own.
  bool RunReady();
  // Changes that wait for the writer.
  size_t Queued() const;
  // When the next timer is due; WallTime::max() when there is none.
  WallTime NextTimer() const;

 private:
  explicit ControlPlane(std::unique_ptr<Writer> writer);

  const std::unique_ptr<Writer> writer_;
};

}  // namespace torpor::control
