#include "control/control_plane.h"

#include <atomic>

#include "control/core/record_view.h"
#include "control/reconciler/writer.h"
#include "control/resources.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

using core::Key;

// A resume tells the generation that runs, the others the one that is kept now.
int64_t GenerationNow(const ateapi::Actor& actor) {
  return actor.status().state() == ateapi::ACTOR_STATE_RUNNING
             ? actor.status().generation()
             : actor.status().last_snapshot_generation();
}

template <typename Response>
Done<VerbOutcome> Respond(Done<Response> done) {
  return [done = std::move(done)](StatusOr<VerbOutcome> outcome) {
    if (!outcome.ok()) return done(std::move(outcome).status());
    Response response;
    if constexpr (std::is_same_v<Response, ateapi::Actor>) {
      response = std::move(outcome->actor);
    } else {
      response.set_op_id(outcome->op_id);
      response.set_generation(GenerationNow(outcome->actor));
      for (int64_t lost : outcome->lost_generations) response.add_lost_generations(lost);
      if constexpr (std::is_same_v<Response, ateapi::ResumeActorResponse>) {
        response.set_resumed(outcome->started);
      }
      *response.mutable_actor() = std::move(outcome->actor);
    }
    done(std::move(response));
  };
}

}  // namespace

StatusOr<std::unique_ptr<ControlPlane>> ControlPlane::Create(Parts parts, Settings settings,
                                                             bool threaded) {
  auto writer = std::make_unique<Writer>(std::move(parts), std::move(settings));
  RETURN_IF_ERROR(writer->Load());
  if (threaded) writer->StartThread();
  return std::unique_ptr<ControlPlane>(new ControlPlane(std::move(writer)));
}

ControlPlane::ControlPlane(std::unique_ptr<Writer> writer) : writer_(std::move(writer)) {}
ControlPlane::~ControlPlane() = default;

bool ControlPlane::RunReady() { return writer_->RunReady(); }
size_t ControlPlane::Queued() const { return writer_->queued(); }

WallTime ControlPlane::NextTimer() const { return writer_->NextTimer(); }

StatusOr<ateapi::Atespace> ControlPlane::CreateAtespace(
    const ateapi::CreateAtespaceRequest& request) {
  return writer_->Call<ateapi::Atespace>([writer = writer_.get(), request](Txn& txn) {
    return control::CreateAtespace(*writer, txn, request);
  });
}

StatusOr<ateapi::Atespace> ControlPlane::DeleteAtespace(
    const ateapi::DeleteAtespaceRequest& request) {
  return writer_->Call<ateapi::Atespace>([writer = writer_.get(), request](Txn& txn) {
    return control::DeleteAtespace(*writer, txn, request);
  });
}

StatusOr<ateapi::ActorTemplate> ControlPlane::CreateActorTemplate(
    const ateapi::CreateActorTemplateRequest& request) {
  return writer_->Call<ateapi::ActorTemplate>([writer = writer_.get(), request](Txn& txn) {
    return CreateTemplate(*writer, txn, request);
  });
}

StatusOr<ateapi::ActorTemplate> ControlPlane::DeleteActorTemplate(
    const ateapi::DeleteActorTemplateRequest& request) {
  return writer_->Call<ateapi::ActorTemplate>([writer = writer_.get(), request](Txn& txn) {
    return DeleteTemplate(*writer, txn, request);
  });
}

StatusOr<ateapi::Actor> ControlPlane::CreateActor(const ateapi::CreateActorRequest& request) {
  return writer_->Call<ateapi::Actor>([writer = writer_.get(), request](Txn& txn) {
    return control::CreateActor(*writer, txn, request);
  });
}

StatusOr<ateapi::Actor> ControlPlane::UpdateActor(const ateapi::UpdateActorRequest& request) {
  return writer_->Call<ateapi::Actor>([writer = writer_.get(), request](Txn& txn) {
    StatusOr<ateapi::Actor> actor = control::UpdateActor(*writer, txn, request);
    if (actor.ok()) writer->ActorUpdated(txn, Key(actor->metadata()));
    return actor;
  });
}

StatusOr<ateapi::Worker> ControlPlane::DrainWorker(const ateapi::DrainWorkerRequest& request) {
  return writer_->Call<ateapi::Worker>([writer = writer_.get(), request](Txn& txn) {
    return control::DrainWorker(*writer, txn, request);
  });
}

void ControlPlane::DeleteActor(const ateapi::DeleteActorRequest& request,
                               const CallContext& context, Done<ateapi::Actor> done) {
  if (Status status = CheckNotReserved(request.actor().atespace()); !status.ok()) {
    return done(status);
  }
  VerbCall call;
  call.actor_key = Key(request.actor());
  call.verb = torpor::v1::VERB_DELETE;
  call.any_state = request.any_state();
  call.options = request.options();
  writer_->StartVerbCall(std::move(call), context, Respond<ateapi::Actor>(std::move(done)));
}

void ControlPlane::ResumeActor(const ateapi::ResumeActorRequest& request,
                               const CallContext& context, Done<ateapi::ResumeActorResponse> done) {
  if (Status status = CheckNotReserved(request.actor().atespace()); !status.ok()) {
    return done(status);
  }
  const std::string key = Key(request.actor());
  auto record = writer_->state().Find<torpor::v1::ActorRecord>(key);
  if (record == nullptr) {
    return done(Fail(reasons::kActorNotFound, "no actor " + key, {{"actor", key}}));
  }
  if (record->actor().status().state() == ateapi::ACTOR_STATE_RUNNING) {
    ateapi::ResumeActorResponse response;
    *response.mutable_actor() = record->actor();
    response.set_generation(record->actor().status().generation());
    writer_->Touch(record->actor().metadata().uid());
    return done(std::move(response));
  }
  VerbCall call;
  call.actor_key = key;
  call.verb = torpor::v1::VERB_RESUME;
  call.wait_for_capacity = FromProto(request.wait_for_capacity());
  writer_->StartVerbCall(std::move(call), context,
                         Respond<ateapi::ResumeActorResponse>(std::move(done)));
}

void ControlPlane::PauseActor(const ateapi::PauseActorRequest& request, const CallContext& context,
                              Done<ateapi::PauseActorResponse> done) {
  if (Status status = CheckNotReserved(request.actor().atespace()); !status.ok()) {
    return done(status);
  }
  VerbCall call;
  call.actor_key = Key(request.actor());
  call.verb = torpor::v1::VERB_PAUSE;
  call.fidelity = request.fidelity();
  writer_->StartVerbCall(std::move(call), context,
                         Respond<ateapi::PauseActorResponse>(std::move(done)));
}

void ControlPlane::SuspendActor(const ateapi::SuspendActorRequest& request,
                                const CallContext& context,
                                Done<ateapi::SuspendActorResponse> done) {
  if (Status status = CheckNotReserved(request.actor().atespace()); !status.ok()) {
    return done(status);
  }
  VerbCall call;
  call.actor_key = Key(request.actor());
  call.verb = torpor::v1::VERB_SUSPEND;
  call.fidelity = request.fidelity();
  writer_->StartVerbCall(std::move(call), context,
                         Respond<ateapi::SuspendActorResponse>(std::move(done)));
}

void ControlPlane::RevertActor(const ateapi::RevertActorRequest& request,
                               const CallContext& context, Done<ateapi::RevertActorResponse> done) {
  if (Status status = CheckNotReserved(request.actor().atespace()); !status.ok()) {
    return done(status);
  }
  VerbCall call;
  call.actor_key = Key(request.actor());
  call.verb = torpor::v1::VERB_REVERT;
  writer_->StartVerbCall(std::move(call), context,
                         Respond<ateapi::RevertActorResponse>(std::move(done)));
}

void ControlPlane::RollbackActor(const torpor::v1::RollbackActorRequest& request,
                                 const CallContext& context,
                                 Done<torpor::v1::RollbackActorResponse> done) {
  if (Status status = CheckNotReserved(request.actor().atespace()); !status.ok()) {
    return done(status);
  }
  VerbCall call;
  call.actor_key = Key(request.actor());
  call.verb = torpor::v1::VERB_ROLLBACK;
  call.generation = request.generation();
  call.options.set_uid(request.uid());
  call.options.set_version(request.version());
  writer_->StartVerbCall(std::move(call), context,
                         [done = std::move(done)](StatusOr<VerbOutcome> outcome) {
                           if (!outcome.ok()) return done(std::move(outcome).status());
                           torpor::v1::RollbackActorResponse response;
                           response.set_op_id(outcome->op_id);
                           for (int64_t lost : outcome->lost_generations) {
                             response.add_lost_generations(lost);
                           }
                           *response.mutable_actor() = std::move(outcome->actor);
                           done(std::move(response));
                         });
}

void ControlPlane::WaitActor(const torpor::v1::WaitActorRequest& request,
                             const CallContext& context, Done<torpor::v1::WaitActorResponse> done) {
  VerbCall call;
  call.actor_key = Key(request.actor());
  for (int state : request.states()) call.states.insert(static_cast<ateapi::ActorState>(state));
  CallContext bounded = context;
  Duration timeout =
      request.has_timeout() ? FromProto(request.timeout()) : Duration(std::chrono::seconds(60));
  bounded.deadline = std::min(context.deadline, writer_->clock().Now() + timeout);
  writer_->StartVerbCall(std::move(call), bounded,
                         [done = std::move(done)](StatusOr<VerbOutcome> outcome) {
                           if (!outcome.ok()) return done(std::move(outcome).status());
                           torpor::v1::WaitActorResponse response;
                           *response.mutable_actor() = std::move(outcome->actor);
                           done(std::move(response));
                         });
}

void ControlPlane::CreateTag(const ateapi::CreateTagRequest& request, const CallContext& context,
                             Done<ateapi::Tag> done) {
  writer_->StartTagCall([writer = writer_.get(),
                         request](Txn& txn) { return control::CreateTag(*writer, txn, request); },
                        context, std::move(done));
}

StatusOr<ateapi::Tag> ControlPlane::UpdateTag(const ateapi::UpdateTagRequest& request) {
  return writer_->Call<ateapi::Tag>([writer = writer_.get(), request](Txn& txn) {
    return control::UpdateTag(*writer, txn, request);
  });
}

StatusOr<ateapi::Tag> ControlPlane::DeleteTag(const ateapi::DeleteTagRequest& request) {
  return writer_->Call<ateapi::Tag>([writer = writer_.get(), request](Txn& txn) {
    return control::DeleteTag(*writer, txn, request);
  });
}

void ControlPlane::ForkActor(const torpor::v1::ForkActorRequest& request,
                             const CallContext& context, Done<torpor::v1::ForkActorResponse> done) {
  if (!request.resume()) return writer_->StartFork(request, context, std::move(done));
  struct Wakes {
    torpor::v1::ForkActorResponse response;
    std::atomic<int> left = 0;
    Done<torpor::v1::ForkActorResponse> done;
  };
  auto wakes = std::make_shared<Wakes>();
  wakes->done = std::move(done);
  auto forked = [writer = writer_.get(), context,
                 wakes](StatusOr<torpor::v1::ForkActorResponse> response) {
    if (!response.ok()) return wakes->done(std::move(response).status());
    wakes->response = *std::move(response);
    std::vector<std::string> keys;
    for (const ateapi::Actor& child : wakes->response.actors()) {
      keys.push_back(Key(child.metadata()));
    }
    wakes->left = static_cast<int>(keys.size());
    for (const std::string& key : keys) {
      VerbCall call;
      call.actor_key = key;
      call.verb = torpor::v1::VERB_RESUME;
      writer->StartVerbCall(std::move(call), context, [writer, wakes](StatusOr<VerbOutcome>) {
        if (--wakes->left > 0) return;
        // Each as it is now: a wake may have failed by itself.
        for (ateapi::Actor& child : *wakes->response.mutable_actors()) {
          auto record = writer->state().Find<torpor::v1::ActorRecord>(Key(child.metadata()));
          if (record != nullptr) child = writer->Shown(*record);
        }
        wakes->done(std::move(wakes->response));
      });
    }
  };
  writer_->StartFork(request, context, std::move(forked));
}

StatusOr<torpor::v1::RegisterNodeResponse> ControlPlane::RegisterNode(
    const torpor::v1::RegisterNodeRequest& request) {
  return writer_->Call<torpor::v1::RegisterNodeResponse>(
      [writer = writer_.get(), request](Txn& txn) { return writer->RegisterNode(txn, request); });
}

StatusOr<torpor::v1::RenewLeaseResponse> ControlPlane::RenewLease(
    const torpor::v1::RenewLeaseRequest& request) {
  return writer_->RenewLease(request);
}

StatusOr<torpor::v1::ReportOperationResponse> ControlPlane::ReportOperation(
    const torpor::v1::ReportOperationRequest& request) {
  RETURN_IF_ERROR(writer_->ReportOperation(request));
  return torpor::v1::ReportOperationResponse();
}

StatusOr<torpor::v1::ReportActorResponse> ControlPlane::ReportActor(
    const torpor::v1::ReportActorRequest& request) {
  return writer_->Call<torpor::v1::ReportActorResponse>(
      [writer = writer_.get(), request](Txn& txn) -> StatusOr<torpor::v1::ReportActorResponse> {
        RETURN_IF_ERROR(writer->ReportActor(txn, request));
        return torpor::v1::ReportActorResponse();
      });
}

StatusOr<torpor::v1::ReportUsageResponse> ControlPlane::ReportUsage(
    const torpor::v1::ReportUsageRequest& request) {
  // Usage is not served yet; a node with a stale lease still has to learn that.
  RETURN_IF_ERROR(writer_->NodeOfLease(request.lease_id()).status());
  return torpor::v1::ReportUsageResponse();
}

StatusOr<torpor::v1::ListNodeActorsResponse> ControlPlane::ListNodeActors(
    const torpor::v1::ListNodeActorsRequest& request) {
  return writer_->ListNodeActors(request.lease_id());
}

StatusOr<torpor::v1::ReportActivityResponse> ControlPlane::ReportActivity(
    const torpor::v1::ReportActivityRequest& request) {
  writer_->ReportActivity(request);
  return torpor::v1::ReportActivityResponse();
}

StatusOr<torpor::v1::ReportActorResponse> ControlPlane::WishIdle(const torpor::v1::IdleWish& wish) {
  return writer_->Call<torpor::v1::ReportActorResponse>(
      [writer = writer_.get(), wish](Txn& txn) -> StatusOr<torpor::v1::ReportActorResponse> {
        RETURN_IF_ERROR(writer->Wish(txn, wish));
        return torpor::v1::ReportActorResponse();
      });
}

StatusOr<torpor::v1::ReportActorResponse> ControlPlane::WishAwake(
    const torpor::v1::AwakeWish& wish) {
  return writer_->Call<torpor::v1::ReportActorResponse>(
      [writer = writer_.get(), wish](Txn& txn) -> StatusOr<torpor::v1::ReportActorResponse> {
        RETURN_IF_ERROR(writer->Wish(txn, wish));
        return torpor::v1::ReportActorResponse();
      });
}

StatusOr<torpor::v1::KeepActorAwakeResponse> ControlPlane::KeepActorAwake(
    const torpor::v1::KeepActorAwakeRequest& request) {
  RETURN_IF_ERROR(CheckNotReserved(request.actor().atespace()));
  return writer_->Call<torpor::v1::KeepActorAwakeResponse>(
      [writer = writer_.get(), request](Txn& txn) -> StatusOr<torpor::v1::KeepActorAwakeResponse> {
        const std::string key = Key(request.actor());
        if (txn.Get<torpor::v1::ActorRecord>(key) == nullptr) {
          return Fail(reasons::kActorNotFound, "no actor " + key, {{"actor", key}});
        }
        torpor::v1::KeepActorAwakeResponse response;
        *response.mutable_awake_until() =
            ToProto(writer->KeepAwake(txn, key, FromProto(request.duration())));
        return response;
      });
}

StatusOr<torpor::v1::Node> ControlPlane::DrainNode(const torpor::v1::DrainNodeRequest& request) {
  StatusOr<std::string> drained = writer_->Call<std::string>(
      [writer = writer_.get(), request](Txn& txn) -> StatusOr<std::string> {
        RETURN_IF_ERROR(writer->DrainNode(txn, request));
        return request.name();
      });
  if (!drained.ok()) return std::move(drained).status();
  torpor::v1::GetNodeRequest get;
  get.set_name(*drained);
  return GetNode(get);
}

StatusOr<std::shared_ptr<ActorWatch>> ControlPlane::WatchActors(
    const torpor::v1::WatchActorsRequest& request) {
  return writer_->Watch(request);
}

}  // namespace torpor::control
