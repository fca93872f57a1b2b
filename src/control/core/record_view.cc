#include "control/core/record_view.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/quantity.h"
#include "model/reasons.h"
#include "snapshot/format/sha256.h"

namespace torpor::control::core {
namespace {

using torpor::v1::ActorRecord;
using torpor::v1::Durability;
using torpor::v1::GenerationRecord;
using torpor::v1::SnapshotStorage;

ateapi::SnapshotContentScope Scope(torpor::v1::Fidelity fidelity) {
  return fidelity == torpor::v1::FIDELITY_MEMORY ? ateapi::SNAPSHOT_CONTENT_SCOPE_FULL
                                                 : ateapi::SNAPSHOT_CONTENT_SCOPE_DATA;
}

// Limits of one list of resources; a dimension that is not limited stays as it is.
void ApplyLimits(const ateapi::Resources& resources, int64_t* memory, int64_t* cpu) {
  for (const auto& limit : resources.limits()) {
    if (limit.name() == "memory") {
      if (auto bytes = ParseBytes(limit.quantity()); bytes.ok()) *memory = *bytes;
    } else if (limit.name() == "cpu") {
      if (auto milli = ParseMilli(limit.quantity()); milli.ok()) *cpu = *milli;
    }
  }
}

bool HasComplete(const GenerationRecord& generation) {
  if (generation.damaged()) return false;
  return IsComplete(FindStorage(generation, torpor::v1::DURABILITY_LOCAL)) ||
         IsComplete(FindStorage(generation, torpor::v1::DURABILITY_DURABLE));
}

void RenderSnapshots(ActorRecord& record) {
  ateapi::ActorStatus& status = *record.mutable_actor()->mutable_status();
  status.clear_external_snapshot();
  status.clear_local_snapshot();
  status.clear_in_progress_snapshot_uri();
  status.clear_in_progress_local_snapshot_name();
  status.clear_last_snapshot_generation();
  status.clear_last_snapshot_bytes();
  status.clear_last_snapshot_fidelity();
  if (const GenerationRecord* durable = CurrentDurable(record)) {
    const SnapshotStorage& storage = *FindStorage(*durable, torpor::v1::DURABILITY_DURABLE);
    auto* external = status.mutable_external_snapshot();
    external->set_snapshot_uri(storage.uri());
    external->set_content_scope(Scope(storage.fidelity()));
    external->set_actor_template_uid(durable->generation().actor_template_uid());
  } else if (record.has_borrowed()) {
    auto* external = status.mutable_external_snapshot();
    external->set_snapshot_uri(record.borrowed().snapshot().uri());
    external->set_content_scope(Scope(record.borrowed().fidelity()));
    external->set_actor_template_uid(record.borrowed().template_uid());
  }
  const GenerationRecord* current = Current(record);
  if (current != nullptr) {
    const SnapshotStorage* local = FindStorage(*current, torpor::v1::DURABILITY_LOCAL);
    const SnapshotStorage* durable = FindStorage(*current, torpor::v1::DURABILITY_DURABLE);
    const SnapshotStorage& shown = IsComplete(durable) ? *durable : *local;
    status.set_last_snapshot_generation(current->generation().generation());
    status.set_last_snapshot_bytes(shown.stored_bytes());
    status.set_last_snapshot_fidelity(shown.fidelity());
    bool resting = status.state() == ateapi::ACTOR_STATE_PAUSED ||
                   status.state() == ateapi::ACTOR_STATE_SUSPENDING;
    if (resting && IsComplete(local)) {
      status.mutable_local_snapshot()->set_snapshot_name(local->snapshot_name());
      status.mutable_local_snapshot()->set_content_scope(Scope(local->fidelity()));
    }
  }
  for (const GenerationRecord& generation : record.generations()) {
    for (const SnapshotStorage& storage : generation.generation().storages()) {
      if (IsComplete(&storage)) continue;
      if (storage.durability() == torpor::v1::DURABILITY_LOCAL) {
        status.set_in_progress_local_snapshot_name(storage.snapshot_name());
      } else {
        status.set_in_progress_snapshot_uri(storage.uri());
      }
    }
  }
}

}  // namespace

WallTime Later(WallTime t, Duration by) {
  return t + std::chrono::duration_cast<WallTime::duration>(by);
}

std::string Key(const std::string& atespace, const std::string& name) {
  return atespace + "/" + name;
}

Status CheckOptions(const ateapi::DeleteOptions& options, const ateapi::ResourceMetadata& have) {
  if (!options.uid().empty() && options.uid() != have.uid()) {
    return Fail(reasons::kUidConflict, "another object has this name now", {{"uid", have.uid()}});
  }
  if (options.version() != 0 && options.version() != have.version()) {
    return Fail(reasons::kVersionConflict, "the object has changed; read it again",
                {{"version", fmt::to_string(have.version())}});
  }
  return OkStatus();
}

const SnapshotStorage* FindStorage(const GenerationRecord& generation, Durability durability) {
  for (const SnapshotStorage& storage : generation.generation().storages()) {
    if (storage.durability() == durability) return &storage;
  }
  return nullptr;
}

SnapshotStorage* FindStorage(GenerationRecord& generation, Durability durability) {
  for (SnapshotStorage& storage : *generation.mutable_generation()->mutable_storages()) {
    if (storage.durability() == durability) return &storage;
  }
  return nullptr;
}

bool IsComplete(const SnapshotStorage* storage) {
  return storage != nullptr && storage->status() == torpor::v1::STORAGE_STATUS_COMPLETED;
}

void RemoveStorage(GenerationRecord& generation, Durability durability) {
  auto* storages = generation.mutable_generation()->mutable_storages();
  storages->erase(
      std::remove_if(storages->begin(), storages->end(),
                     [&](const SnapshotStorage& s) { return s.durability() == durability; }),
      storages->end());
}

GenerationRecord* FindGeneration(ActorRecord& record, int64_t generation) {
  for (GenerationRecord& candidate : *record.mutable_generations()) {
    if (candidate.generation().generation() == generation) return &candidate;
  }
  return nullptr;
}

const GenerationRecord* Current(const ActorRecord& record) {
  for (int i = record.generations_size() - 1; i >= 0; --i) {
    if (HasComplete(record.generations(i))) return &record.generations(i);
  }
  return nullptr;
}

const GenerationRecord* CurrentDurable(const ActorRecord& record) {
  for (int i = record.generations_size() - 1; i >= 0; --i) {
    if (!record.generations(i).damaged() &&
        IsComplete(FindStorage(record.generations(i), torpor::v1::DURABILITY_DURABLE))) {
      return &record.generations(i);
    }
  }
  return nullptr;
}

std::optional<torpor::v1::BorrowedSnapshot> DurableSnapshot(const ActorRecord& record,
                                                            int64_t number) {
  const GenerationRecord* generation = number == 0 ? CurrentDurable(record) : nullptr;
  for (const GenerationRecord& candidate : record.generations()) {
    if (candidate.generation().generation() == number) generation = &candidate;
  }
  const SnapshotStorage* durable =
      generation == nullptr ? nullptr : FindStorage(*generation, torpor::v1::DURABILITY_DURABLE);
  torpor::v1::BorrowedSnapshot snapshot;
  if (IsComplete(durable)) {
    snapshot.mutable_snapshot()->set_uri(durable->uri());
    snapshot.mutable_snapshot()->set_manifest_sha256(generation->manifest_sha256());
    snapshot.set_fidelity(durable->fidelity());
    snapshot.set_template_uid(generation->generation().actor_template_uid());
    snapshot.set_generation(generation->generation().generation());
    snapshot.set_cpu_id(generation->cpu_id());
    return snapshot;
  }
  if (number != 0 || !record.has_borrowed()) return std::nullopt;
  snapshot = record.borrowed();
  snapshot.clear_tag();
  snapshot.clear_tag_uid();
  return snapshot;
}

void Borrow(const torpor::v1::TagRecord& tag, ActorRecord& record) {
  torpor::v1::BorrowedSnapshot& borrowed = *record.mutable_borrowed();
  borrowed.mutable_tag()->set_atespace(tag.tag().metadata().atespace());
  borrowed.mutable_tag()->set_name(tag.tag().metadata().name());
  borrowed.set_tag_uid(tag.tag().metadata().uid());
  *borrowed.mutable_snapshot() = tag.snapshot();
  borrowed.set_fidelity(tag.fidelity());
  borrowed.set_template_uid(tag.template_uid());
  borrowed.set_generation(tag.generation());
  borrowed.set_cpu_id(tag.cpu_id());
}

std::string LocalNode(const ActorRecord& record) {
  const GenerationRecord* current = Current(record);
  if (current == nullptr) return "";
  const SnapshotStorage* local = FindStorage(*current, torpor::v1::DURABILITY_LOCAL);
  return IsComplete(local) ? local->node_name() : "";
}

bool IsUploading(const ActorRecord& record) {
  return record.actor().status().state() == ateapi::ACTOR_STATE_SUSPENDING &&
         record.operation().step() == torpor::v1::OPERATION_STEP_UPLOAD;
}

torpor::v1::Fidelity TemplateFidelity(const ateapi::ActorTemplate& tmpl) {
  const ateapi::SnapshotConfig& config = tmpl.snapshot_config();
  if (config.preferred_fidelity() != torpor::v1::FIDELITY_UNSPECIFIED) {
    return config.preferred_fidelity();
  }
  return config.on_commit() == ateapi::SNAPSHOT_CONTENT_SCOPE_DATA ? torpor::v1::FIDELITY_VOLUMES
                                                                   : torpor::v1::FIDELITY_MEMORY;
}

scheduler::Amount Needs(const ateapi::ActorTemplate& tmpl, const Settings& settings) {
  scheduler::Amount needs{settings.default_memory_bytes, settings.default_cpu_milli, 1};
  ApplyLimits(tmpl.resources(), &needs.memory_bytes, &needs.cpu_milli);
  return needs;
}

torpor::v1::CpuFeatures CpuOf(const torpor::v1::SnapshotMeta& meta) {
  std::set<std::string> names(meta.cpu_features().begin(), meta.cpu_features().end());
  torpor::v1::CpuFeatures cpu;
  cpu.set_architecture(meta.architecture());
  for (const std::string& name : names) cpu.add_names(name);
  return cpu;
}

std::string CpuId(const torpor::v1::CpuFeatures& cpu) {
  if (cpu.names().empty()) return {};
  return snapshot::Sha256Hex(fmt::format("{} {}", cpu.architecture(), fmt::join(cpu.names(), " ")))
      .substr(0, 32);
}

scheduler::Amount Capacity(const ateapi::WorkerResources& resources) {
  scheduler::Amount capacity{0, 0, resources.actors()};
  ApplyLimits(resources.resources(), &capacity.memory_bytes, &capacity.cpu_milli);
  return capacity;
}

torpor::v1::WorkloadSpec MakeSpec(const ateapi::ActorTemplate& tmpl, const Settings& settings) {
  torpor::v1::WorkloadSpec spec;
  for (const ateapi::Container& container : tmpl.containers()) {
    auto* out = spec.add_containers();
    out->set_name(container.name());
    out->set_image(container.image());
    *out->mutable_command() = container.command();
    *out->mutable_args() = container.args();
    *out->mutable_env() = container.env();
    if (container.has_wakeup_probe()) *out->mutable_wakeup_probe() = container.wakeup_probe();
    *out->mutable_volume_mounts() = container.volume_mounts();
    if (container.security_context().has_capabilities()) {
      *out->mutable_capabilities() = container.security_context().capabilities();
    }
    int64_t memory = 0;
    int64_t cpu = 0;
    ApplyLimits(container.resources(), &memory, &cpu);
    out->set_memory_bytes(memory);
    out->set_cpu_milli(cpu);
  }
  for (const ateapi::Volume& volume : tmpl.volumes()) {
    auto* out = spec.add_volumes();
    out->set_name(volume.name());
    if (volume.has_durable_dir()) *out->mutable_durable_dir() = volume.durable_dir();
    if (volume.has_system_info()) *out->mutable_system_info() = volume.system_info();
    if (volume.has_image()) *out->mutable_image() = volume.image();
  }
  scheduler::Amount needs = Needs(tmpl, settings);
  spec.set_memory_bytes(needs.memory_bytes);
  spec.set_cpu_milli(needs.cpu_milli);
  spec.set_http_port(tmpl.http_port() == 0 ? 80 : tmpl.http_port());
  return spec;
}

Duration LongestProbe(const ateapi::ActorTemplate& tmpl) {
  int64_t seconds = 0;
  for (const ateapi::Container& container : tmpl.containers()) {
    if (!container.has_wakeup_probe()) continue;
    int64_t probe = container.wakeup_probe().timeout_seconds();
    seconds = std::max(seconds, probe == 0 ? 30 : probe);
  }
  return std::chrono::seconds(seconds);
}

torpor::v1::ActorIdentity Identity(const ActorRecord& record, const std::string& template_uid) {
  torpor::v1::ActorIdentity identity;
  identity.set_atespace(record.actor().metadata().atespace());
  identity.set_name(record.actor().metadata().name());
  identity.set_uid(record.actor().metadata().uid());
  identity.set_template_atespace(record.actor().actor_template().atespace());
  identity.set_template_name(record.actor().actor_template().name());
  identity.set_template_uid(template_uid);
  return identity;
}

torpor::v1::CrashPolicy EffectiveCrashPolicy(const ActorRecord& record,
                                             const torpor::v1::TemplateRecord* tmpl) {
  torpor::v1::CrashPolicy policy;
  if (tmpl != nullptr) policy = tmpl->actor_template().crash_policy();
  const torpor::v1::CrashPolicy& own = record.actor().crash_policy();
  if (own.on_crash() != torpor::v1::ON_CRASH_UNSPECIFIED) policy.set_on_crash(own.on_crash());
  if (own.max_reverts() != 0) policy.set_max_reverts(own.max_reverts());
  if (own.has_window()) *policy.mutable_window() = own.window();
  if (policy.max_reverts() == 0) policy.set_max_reverts(3);
  if (!policy.has_window()) policy.mutable_window()->set_seconds(600);
  return policy;
}

torpor::v1::IdlePolicy EffectiveIdlePolicy(const ActorRecord& record,
                                           const torpor::v1::TemplateRecord* tmpl) {
  torpor::v1::IdlePolicy policy;
  if (record.golden()) return policy;
  if (tmpl != nullptr) policy = tmpl->actor_template().idle_policy();
  const torpor::v1::IdlePolicy& own = record.actor().idle_policy();
  if (own.has_pause_after()) *policy.mutable_pause_after() = own.pause_after();
  if (own.has_suspend_after()) *policy.mutable_suspend_after() = own.suspend_after();
  if (own.has_freeze_after()) *policy.mutable_freeze_after() = own.freeze_after();
  if (own.has_max_keep_awake()) *policy.mutable_max_keep_awake() = own.max_keep_awake();
  return policy;
}

void RenderStatus(ActorRecord& record) {
  ateapi::ActorStatus& status = *record.mutable_actor()->mutable_status();
  RenderSnapshots(record);
  if (!record.has_binding()) status.clear_worker_assignment();
  if (record.has_binding()) {
    status.set_assigned_node(record.binding().node_name());
  } else if (status.state() == ateapi::ACTOR_STATE_SUSPENDED) {
    status.clear_assigned_node();  // what its last node still holds is a cache
  } else {
    status.set_assigned_node(LocalNode(record));
  }
  if (record.has_operation()) {
    const torpor::v1::ActorOperation& operation = record.operation();
    torpor::v1::OperationRef& ref = *status.mutable_operation();
    ref.set_op_id(operation.op_id());
    ref.set_verb(operation.verb());
    ref.set_step(
        torpor::v1::OperationStep_Name(operation.step()).substr(sizeof("OPERATION_STEP_") - 1));
    ref.set_trigger(operation.trigger());
    *ref.mutable_start_time() = operation.start_time();
    *ref.mutable_deadline() = operation.deadline();
  } else {
    status.clear_operation();
  }
  int64_t current = status.last_snapshot_generation();
  for (GenerationRecord& generation : *record.mutable_generations()) {
    generation.mutable_generation()->set_current(generation.generation().generation() == current);
  }
}

}  // namespace torpor::control::core
