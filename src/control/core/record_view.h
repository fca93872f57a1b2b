#pragma once
// Questions about records, and the one function that turns a record into what clients see. Pure.

#include <optional>
#include <string>
#include <vector>

#include "ateapi/ateapi.pb.h"
#include "base/time.h"
#include "control/settings.h"
#include "scheduler/placement.h"
#include "torpor/v1/record.pb.h"

namespace torpor::control::core {

WallTime Later(WallTime t, Duration by);
std::string Key(const std::string& atespace, const std::string& name);  // "<atespace>/<name>"
inline std::string Key(const ateapi::ObjectRef& ref) { return Key(ref.atespace(), ref.name()); }
inline std::string Key(const ateapi::ResourceMetadata& m) { return Key(m.atespace(), m.name()); }

// ABORTED UID_CONFLICT or VERSION_CONFLICT unless the preconditions of a delete hold.
Status CheckOptions(const ateapi::DeleteOptions& options, const ateapi::ResourceMetadata& have);

// The storage of `generation` with that durability, or null.
const torpor::v1::SnapshotStorage* FindStorage(const torpor::v1::GenerationRecord& generation,
                                               torpor::v1::Durability durability);
torpor::v1::SnapshotStorage* FindStorage(torpor::v1::GenerationRecord& generation,
                                         torpor::v1::Durability durability);
bool IsComplete(const torpor::v1::SnapshotStorage* storage);
void RemoveStorage(torpor::v1::GenerationRecord& generation, torpor::v1::Durability durability);
torpor::v1::GenerationRecord* FindGeneration(torpor::v1::ActorRecord& record, int64_t generation);
// The newest generation with a COMPLETED storage that is not known to be damaged; null = the actor
// owns no snapshot.
const torpor::v1::GenerationRecord* Current(const torpor::v1::ActorRecord& record);
const torpor::v1::GenerationRecord* CurrentDurable(const torpor::v1::ActorRecord& record);
// What a tag of the actor can be copied from (without a tag of its own): the durable snapshot of
// `generation`, or, for 0, what it would start from now; nullopt = there is none.
std::optional<torpor::v1::BorrowedSnapshot> DurableSnapshot(const torpor::v1::ActorRecord& record,
                                                            int64_t generation = 0);
// The actor starts from the tag, until it has a durable snapshot of its own.
void Borrow(const torpor::v1::TagRecord& tag, torpor::v1::ActorRecord& record);
// The node of the current LOCAL storage; empty when there is none.
std::string LocalNode(const torpor::v1::ActorRecord& record);
// A suspend whose local generation is complete: the actor can be resumed from it.
bool IsUploading(const torpor::v1::ActorRecord& record);

torpor::v1::Fidelity TemplateFidelity(const ateapi::ActorTemplate& tmpl);
// What an actor of the template takes of a worker.
scheduler::Amount Needs(const ateapi::ActorTemplate& tmpl, const Settings& settings);
// What a worker reports; a dimension that is not reported counts as 0.
scheduler::Amount Capacity(const ateapi::WorkerResources& resources);
// The CPU that the snapshot was captured on; without names when the runtime does not say.
torpor::v1::CpuFeatures CpuOf(const torpor::v1::SnapshotMeta& meta);
// Equal CPUs have equal ids; empty when there is nothing to match.
std::string CpuId(const torpor::v1::CpuFeatures& cpu);
torpor::v1::WorkloadSpec MakeSpec(const ateapi::ActorTemplate& tmpl, const Settings& settings);
Duration LongestProbe(const ateapi::ActorTemplate& tmpl);
torpor::v1::ActorIdentity Identity(const torpor::v1::ActorRecord& record,
                                   const std::string& template_uid);
// The actor's own, where set, else the template's; `tmpl` may be null.
torpor::v1::CrashPolicy EffectiveCrashPolicy(const torpor::v1::ActorRecord& record,
                                             const torpor::v1::TemplateRecord* tmpl);
torpor::v1::IdlePolicy EffectiveIdlePolicy(const torpor::v1::ActorRecord& record,
                                           const torpor::v1::TemplateRecord* tmpl);

// Recomputes every field of actor.status that follows from the rest of the record.
void RenderStatus(torpor::v1::ActorRecord& record);

}  // namespace torpor::control::core
