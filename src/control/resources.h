#pragma once
// Create, update and delete of atespaces, templates, actors and tags: what is checked and stored.
// Internal to control. Every function runs in the writer and stages nothing when it fails.

#include "ateapi/ateapi.pb.h"
#include "base/status.h"
#include "control/reconciler/writer.h"

namespace torpor::control {

StatusOr<ateapi::Atespace> CreateAtespace(Writer& writer, Txn& txn,
                                          const ateapi::CreateAtespaceRequest& request);
StatusOr<ateapi::Atespace> DeleteAtespace(Writer& writer, Txn& txn,
                                          const ateapi::DeleteAtespaceRequest& request);
StatusOr<ateapi::ActorTemplate> CreateTemplate(Writer& writer, Txn& txn,
                                               const ateapi::CreateActorTemplateRequest& request);
StatusOr<ateapi::ActorTemplate> DeleteTemplate(Writer& writer, Txn& txn,
                                               const ateapi::DeleteActorTemplateRequest& request);
// `forked`: its source tag is the copy that a fork has made for it.
StatusOr<ateapi::Actor> CreateActor(Writer& writer, Txn& txn,
                                    const ateapi::CreateActorRequest& request, bool forked = false);
StatusOr<ateapi::Actor> UpdateActor(Writer& writer, Txn& txn,
                                    const ateapi::UpdateActorRequest& request);
// Begins the copy; the key of the tag.
StatusOr<std::string> CreateTag(Writer& writer, Txn& txn, const ateapi::CreateTagRequest& request);
StatusOr<ateapi::Tag> UpdateTag(Writer& writer, Txn& txn, const ateapi::UpdateTagRequest& request);
StatusOr<ateapi::Tag> DeleteTag(Writer& writer, Txn& txn, const ateapi::DeleteTagRequest& request);
StatusOr<ateapi::Worker> DrainWorker(Writer& writer, Txn& txn,
                                     const ateapi::DrainWorkerRequest& request);

// PERMISSION_DENIED for a write in the reserved atespace.
Status CheckNotReserved(const std::string& atespace);
// The worker as clients see it, with what its actors take.
ateapi::Worker RenderWorker(const torpor::v1::WorkerRecord& record,
                            const scheduler::Amount& allocated);
ateapi::WorkerResources ToResources(const scheduler::Amount& amount);

}  // namespace torpor::control
