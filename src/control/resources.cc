#include "control/resources.h"

#include <algorithm>

#include <fmt/ranges.h>

#include "control/core/golden.h"
#include "control/core/record_view.h"
#include "model/actor_lifecycle.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

using core::Key;

Status Exists(const std::string& what, const std::string& key) {
  return Fail(reasons::kAlreadyExists, fmt::format("{} {} exists already", what, key),
              {{what, key}});
}

// What the caller may not set of a new object.
void StartMetadata(ateapi::ResourceMetadata& metadata, std::string uid) {
  metadata.set_uid(std::move(uid));
  metadata.clear_version();
  metadata.clear_create_time();
  metadata.clear_update_time();
}

template <typename T>
int CountIn(const Txn& txn, const std::string& atespace) {
  int count = 0;
  const std::string prefix = atespace + "/";
  for (const auto& [key, value] : txn.All<T>()) count += key.compare(0, prefix.size(), prefix) == 0;
  return count;
}

bool HasExternalVolumes(const ateapi::ActorTemplate& tmpl) {
  return std::any_of(tmpl.volumes().begin(), tmpl.volumes().end(),
                     [](const ateapi::Volume& v) { return v.has_external_volume_template(); });
}

Status TagNotReady(const std::string& key) {
  return Fail(reasons::kTagNotReady, "the copy of tag " + key + " is not complete yet",
              {{"tag", key}});
}

// `forked`: the tag is of the fork that makes the actor; if the template of its source has changed,
// the child's restore is narrowed as the source's own.
Status BorrowTag(const Txn& txn, const ateapi::Actor& actor, const ateapi::ActorTemplate& tmpl,
                 bool forked, torpor::v1::ActorRecord& record) {
  const std::string key = Key(actor.source_tag());
  auto tag = txn.Get<torpor::v1::TagRecord>(key);
  if (tag == nullptr) return Fail(reasons::kTagNotFound, "no tag " + key, {{"tag", key}});
  if (!tag->ready()) return TagNotReady(key);
  if (tag->tag().scope() != ateapi::TAG_SCOPE_PUBLISHED &&
      actor.source_tag().atespace() != actor.metadata().atespace()) {
    return Fail(reasons::kTagNotPublished,
                "tag " + key + " is for actors of its own atespace only");
  }
  if (!forked && tag->template_uid() != tmpl.metadata().uid()) {
    return Fail(reasons::kTagTemplateMismatch, "tag " + key + " was taken under another template",
                {{"template_uid", tag->template_uid()}});
  }
  if (HasExternalVolumes(tmpl)) {
    return Fail(reasons::kVolumesNotClonable, "external volumes cannot be cloned from a tag");
  }
  core::Borrow(*tag, record);
  return OkStatus();
}

// The field in which a new template must equal the old one and does not; empty when it may be used.
std::string IncompatibleField(const ateapi::ActorTemplate& was, const ateapi::ActorTemplate& is,
                              bool owns_snapshot) {
  auto text = [](const google::protobuf::Message& m) { return m.ShortDebugString(); };
  if (text(was.sandbox_config()) != text(is.sandbox_config())) return "sandbox_config";
  std::map<std::string, std::string> volumes;
  for (const auto& volume : was.volumes()) volumes[volume.name()] = text(volume);
  for (const auto& volume : is.volumes()) {
    auto it = volumes.find(volume.name());
    if (it == volumes.end() || it->second != text(volume)) return "volumes";
  }
  if (was.volumes_size() != is.volumes_size()) return "volumes";
  auto mounts = [&](const ateapi::Container& container) {
    std::map<std::string, std::string> out;
    for (const auto& mount : container.volume_mounts()) out[mount.mount_path()] = mount.name();
    return out;
  };
  for (const auto& container : was.containers()) {
    for (const auto& other : is.containers()) {
      if (other.name() == container.name() && mounts(other) != mounts(container)) {
        return "containers.volume_mounts";
      }
    }
  }
  if (owns_snapshot &&
      was.snapshot_config().storage_location() != is.snapshot_config().storage_location()) {
    return "snapshot_config.storage_location";
  }
  return "";
}

// The preconditions of an update of `what`.
Status CheckVersions(const std::string& what, const ateapi::ResourceMetadata& want,
                     const ateapi::ResourceMetadata& have) {
  if (want.uid().empty() || want.version() == 0) {
    return InvalidFields(reasons::kPreconditionMissing.name,
                         {{what + ".metadata", "uid and version of the object read are needed"}});
  }
  if (want.uid() != have.uid()) {
    return Fail(reasons::kUidConflict, fmt::format("another {} has this name now", what),
                {{"uid", have.uid()}});
  }
  if (want.version() != have.version()) {
    return Fail(reasons::kVersionConflict, fmt::format("the {} has changed; read it again", what),
                {{"version", fmt::to_string(have.version())}});
  }
  return OkStatus();
}

Status CheckUpdate(const ateapi::Actor& want, const ateapi::Actor& have) {
  RETURN_IF_ERROR(CheckVersions("actor", want.metadata(), have.metadata()));
  if (Key(want.source_tag()) != Key(have.source_tag())) {
    return InvalidFields(reasons::kFieldImmutable.name,
                         {{"actor.source_tag", "cannot change after create"}});
  }
  return OkStatus();
}

Status CheckTemplateChange(const Txn& txn, const ateapi::Actor& want,
                           const torpor::v1::ActorRecord& have) {
  const std::string key = Key(want.actor_template());
  if (key == Key(have.actor().actor_template())) return OkStatus();
  if (have.actor().status().state() != ateapi::ACTOR_STATE_SUSPENDED) {
    return Fail(reasons::kWrongState, "actor_template can change only while SUSPENDED",
                {{"state", StateName(have.actor().status().state())}, {"allowed", "SUSPENDED"}});
  }
  auto is = txn.Get<torpor::v1::TemplateRecord>(key);
  if (is == nullptr) {
    return Fail(reasons::kTemplateMissing, "no actor template " + key, {{"actor_template", key}});
  }
  auto was = txn.Get<torpor::v1::TemplateRecord>(Key(have.actor().actor_template()));
  if (was == nullptr) return OkStatus();  // it is gone: nothing to compare with
  bool owns = core::CurrentDurable(have) != nullptr;
  std::string field = IncompatibleField(was->actor_template(), is->actor_template(), owns);
  if (field.empty()) return OkStatus();
  return Fail(reasons::kTemplateIncompatible, fmt::format("the new template differs in {}", field),
              {{"field", field}});
}

}  // namespace

Status CheckNotReserved(const std::string& atespace) {
  if (atespace != core::kGoldenAtespace) return OkStatus();
  return Fail(reasons::kReservedAtespace,
              fmt::format("atespace {} belongs to the server", core::kGoldenAtespace),
              {{"atespace", atespace}});
}

StatusOr<ateapi::Atespace> CreateAtespace(Writer& writer, Txn& txn,
                                          const ateapi::CreateAtespaceRequest& request) {
  const std::string& name = request.atespace().metadata().name();
  RETURN_IF_ERROR(CheckNotReserved(name));
  if (txn.Get<torpor::v1::AtespaceRecord>(name) != nullptr) return Exists("atespace", name);
  torpor::v1::AtespaceRecord record;
  *record.mutable_atespace() = request.atespace();
  StartMetadata(*record.mutable_atespace()->mutable_metadata(), writer.ids().NewUuid());
  return txn.Put(name, std::move(record))->atespace();
}

StatusOr<ateapi::Atespace> DeleteAtespace(Writer&, Txn& txn,
                                          const ateapi::DeleteAtespaceRequest& request) {
  const std::string& name = request.atespace().name();
  RETURN_IF_ERROR(CheckNotReserved(name));
  auto record = txn.Get<torpor::v1::AtespaceRecord>(name);
  if (record == nullptr) {
    return Fail(reasons::kAtespaceNotFound, "no atespace " + name, {{"atespace", name}});
  }
  RETURN_IF_ERROR(core::CheckOptions(request.options(), record->atespace().metadata()));
  int actors = CountIn<torpor::v1::ActorRecord>(txn, name);
  int tags = CountIn<torpor::v1::TagRecord>(txn, name);
  int templates = CountIn<torpor::v1::TemplateRecord>(txn, name);
  if (actors + tags + templates > 0) {
    return Fail(reasons::kAtespaceNotEmpty,
                fmt::format("atespace {} holds {} actors, {} tags and {} templates; delete them "
                            "first",
                            name, actors, tags, templates),
                {{"actors", fmt::to_string(actors)},
                 {"tags", fmt::to_string(tags)},
                 {"actor_templates", fmt::to_string(templates)}});
  }
  txn.Remove<torpor::v1::AtespaceRecord>(name);
  return record->atespace();
}

StatusOr<ateapi::ActorTemplate> CreateTemplate(Writer& writer, Txn& txn,
                                               const ateapi::CreateActorTemplateRequest& request) {
  const ateapi::ActorTemplate& want = request.actor_template();
  const std::string key = Key(want.metadata());
  RETURN_IF_ERROR(CheckNotReserved(want.metadata().atespace()));
  if (txn.Get<torpor::v1::AtespaceRecord>(want.metadata().atespace()) == nullptr) {
    return Fail(reasons::kParentNotFound, "no atespace " + want.metadata().atespace(),
                {{"atespace", want.metadata().atespace()}});
  }
  const auto& configs = writer.settings().sandbox_configs;
  const ateapi::SandboxConfig& sandbox = want.sandbox_config();
  auto config = configs.find(sandbox.config_name());
  if (config == configs.end()) {
    std::string known;
    for (const auto& [name, sandbox_class] : configs) known += (known.empty() ? "" : ", ") + name;
    return Fail(
        reasons::kSandboxConfigNotFound,
        fmt::format("no sandbox configuration {}; there are: {}", sandbox.config_name(), known));
  }
  if (config->second != sandbox.sandbox_class()) {
    return InvalidFields(reasons::kFieldInvalid.name,
                         {{"actor_template.sandbox_config.sandbox_class",
                           "is not the class of configuration " + sandbox.config_name()}});
  }
  if (txn.Get<torpor::v1::TemplateRecord>(key) != nullptr) return Exists("actor_template", key);

  torpor::v1::TemplateRecord record;
  ateapi::ActorTemplate& tmpl = *record.mutable_actor_template();
  tmpl = want;
  StartMetadata(*tmpl.mutable_metadata(), writer.ids().NewUuid());
  tmpl.clear_status();
  ateapi::SnapshotConfig& snapshots = *tmpl.mutable_snapshot_config();
  if (snapshots.storage_location().empty()) {
    snapshots.set_storage_location(writer.settings().default_storage_location);
  }
  while (!snapshots.storage_location().empty() && snapshots.storage_location().back() == '/') {
    snapshots.mutable_storage_location()->pop_back();
  }
  snapshots.set_on_commit(core::TemplateFidelity(tmpl) == torpor::v1::FIDELITY_MEMORY
                              ? ateapi::SNAPSHOT_CONTENT_SCOPE_FULL
                              : ateapi::SNAPSHOT_CONTENT_SCOPE_DATA);
  tmpl.mutable_status()->mutable_golden_snapshot_status();
  record.set_golden_step(tmpl.golden_config().disabled() ? torpor::v1::GOLDEN_STEP_DONE
                                                         : torpor::v1::GOLDEN_STEP_BOOT);
  *record.mutable_golden_start_time() = ToProto(txn.now());
  ateapi::ActorTemplate created = txn.Put(key, std::move(record))->actor_template();
  writer.ReconcileGolden(txn, key);
  return created;
}

StatusOr<ateapi::ActorTemplate> DeleteTemplate(Writer& writer, Txn& txn,
                                               const ateapi::DeleteActorTemplateRequest& request) {
  const std::string key = Key(request.actor_template());
  auto record = txn.Get<torpor::v1::TemplateRecord>(key);
  if (record == nullptr) {
    return Fail(reasons::kTemplateNotFound, "no actor template " + key, {{"actor_template", key}});
  }
  const ateapi::ActorTemplate& tmpl = record->actor_template();
  RETURN_IF_ERROR(core::CheckOptions(request.options(), tmpl.metadata()));
  const std::string golden = Key(core::kGoldenAtespace, tmpl.metadata().uid());
  int borrowers = 0;
  for (const auto& [actor_key, actor] : txn.All<torpor::v1::ActorRecord>()) {
    borrowers += actor->has_borrowed() && Key(actor->borrowed().tag()) == golden;
  }
  if (borrowers > 0) {
    return Fail(reasons::kTemplateInUse,
                fmt::format("{} actors still start from the template's golden snapshot; delete or "
                            "suspend them first",
                            borrowers),
                {{"actors", fmt::to_string(borrowers)}});
  }
  ateapi::ActorTemplate deleted = tmpl;
  writer.RemoveGolden(txn, tmpl.metadata().uid());
  txn.Remove<torpor::v1::TemplateRecord>(key);
  return deleted;
}

StatusOr<ateapi::Actor> CreateActor(Writer& writer, Txn& txn,
                                    const ateapi::CreateActorRequest& request, bool forked) {
  const ateapi::Actor& want = request.actor();
  const std::string key = Key(want.metadata());
  RETURN_IF_ERROR(CheckNotReserved(want.metadata().atespace()));
  if (txn.Get<torpor::v1::AtespaceRecord>(want.metadata().atespace()) == nullptr) {
    return Fail(reasons::kParentNotFound, "no atespace " + want.metadata().atespace(),
                {{"atespace", want.metadata().atespace()}});
  }
  const std::string template_key = Key(want.actor_template());
  auto tmpl = txn.Get<torpor::v1::TemplateRecord>(template_key);
  if (tmpl == nullptr) {
    return Fail(reasons::kTemplateMissing, "no actor template " + template_key,
                {{"actor_template", template_key}});
  }
  if (txn.Get<torpor::v1::ActorRecord>(key) != nullptr) return Exists("actor", key);

  torpor::v1::ActorRecord record;
  ateapi::Actor& actor = *record.mutable_actor();
  actor = want;
  StartMetadata(*actor.mutable_metadata(), writer.ids().NewUuid());
  actor.clear_status();
  actor.mutable_status()->set_state(ateapi::ACTOR_STATE_SUSPENDED);
  const ateapi::ActorTemplate& definition = tmpl->actor_template();
  if (want.has_source_tag()) {
    RETURN_IF_ERROR(BorrowTag(txn, actor, definition, forked, record));
  } else if (definition.status().golden_snapshot_status().has_golden_tag()) {
    const std::string golden = Key(definition.status().golden_snapshot_status().golden_tag());
    auto tag = txn.Get<torpor::v1::TagRecord>(golden);
    if (tag != nullptr && tag->ready()) core::Borrow(*tag, record);
  }
  core::RenderStatus(record);
  return txn.Put(key, std::move(record))->actor();
}

StatusOr<ateapi::Actor> UpdateActor(Writer&, Txn& txn, const ateapi::UpdateActorRequest& request) {
  const ateapi::Actor& want = request.actor();
  const std::string key = Key(want.metadata());
  RETURN_IF_ERROR(CheckNotReserved(want.metadata().atespace()));
  auto before = txn.Get<torpor::v1::ActorRecord>(key);
  if (before == nullptr) return Fail(reasons::kActorNotFound, "no actor " + key, {{"actor", key}});
  RETURN_IF_ERROR(CheckUpdate(want, before->actor()));
  RETURN_IF_ERROR(CheckTemplateChange(txn, want, *before));
  torpor::v1::ActorRecord record = *before;
  ateapi::Actor& actor = *record.mutable_actor();
  *actor.mutable_actor_template() = want.actor_template();
  actor.clear_worker_selector();
  if (want.has_worker_selector()) *actor.mutable_worker_selector() = want.worker_selector();
  // Ours: unset keeps, so that a client that does not know them erases nothing.
  if (want.has_idle_policy()) *actor.mutable_idle_policy() = want.idle_policy();
  if (want.has_crash_policy()) *actor.mutable_crash_policy() = want.crash_policy();
  return txn.Put(key, std::move(record))->actor();
}

StatusOr<std::string> CreateTag(Writer& writer, Txn& txn, const ateapi::CreateTagRequest& request) {
  const ateapi::Tag& want = request.tag();
  const std::string key = Key(want.metadata());
  const std::string source = Key(want.source_actor());
  RETURN_IF_ERROR(CheckNotReserved(want.metadata().atespace()));
  if (txn.Get<torpor::v1::AtespaceRecord>(want.metadata().atespace()) == nullptr) {
    return Fail(reasons::kParentNotFound, "no atespace " + want.metadata().atespace(),
                {{"atespace", want.metadata().atespace()}});
  }
  if (txn.Get<torpor::v1::TagRecord>(key) != nullptr) return Exists("tag", key);
  auto actor = txn.Get<torpor::v1::ActorRecord>(source);
  if (actor == nullptr) {
    return Fail(reasons::kActorMissing, "no actor " + source, {{"actor", source}});
  }
  const ateapi::ActorState state = actor->actor().status().state();
  if (state != ateapi::ACTOR_STATE_SUSPENDED) {
    return Fail(reasons::kWrongState,
                fmt::format("actor {} is {}; suspend it first, then its snapshot can be tagged",
                            source, StateName(state)),
                {{"actor", source}, {"state", StateName(state)}, {"allowed", "SUSPENDED"}});
  }
  auto held = core::DurableSnapshot(*actor);
  if (!held) {
    return Fail(reasons::kNoSnapshot,
                fmt::format("actor {} has no snapshot yet; resume and suspend it first", source),
                {{"actor", source}});
  }
  ateapi::Tag tag = want;
  tag.clear_status();
  return writer.PutTag(txn, std::move(tag), *actor, *held, /*forked=*/false);
}

StatusOr<ateapi::Tag> UpdateTag(Writer&, Txn& txn, const ateapi::UpdateTagRequest& request) {
  const ateapi::Tag& want = request.tag();
  const std::string key = Key(want.metadata());
  RETURN_IF_ERROR(CheckNotReserved(want.metadata().atespace()));
  auto before = txn.Get<torpor::v1::TagRecord>(key);
  if (before == nullptr) return Fail(reasons::kTagNotFound, "no tag " + key, {{"tag", key}});
  const ateapi::Tag& have = before->tag();
  RETURN_IF_ERROR(CheckVersions("tag", want.metadata(), have.metadata()));
  if (Key(want.source_actor()) != Key(have.source_actor())) {
    return InvalidFields(reasons::kFieldImmutable.name,
                         {{"tag.source_actor", "cannot change after create"}});
  }
  if (!before->ready()) return TagNotReady(key);
  torpor::v1::TagRecord record = *before;
  record.mutable_tag()->set_scope(want.scope());
  return txn.Put(key, std::move(record))->tag();
}

StatusOr<ateapi::Tag> DeleteTag(Writer& writer, Txn& txn, const ateapi::DeleteTagRequest& request) {
  constexpr size_t kNamesMax = 5;
  const std::string key = Key(request.tag());
  RETURN_IF_ERROR(CheckNotReserved(request.tag().atespace()));
  auto record = txn.Get<torpor::v1::TagRecord>(key);
  if (record == nullptr) return Fail(reasons::kTagNotFound, "no tag " + key, {{"tag", key}});
  RETURN_IF_ERROR(core::CheckOptions(request.options(), record->tag().metadata()));
  const std::vector<std::string> borrowers = writer.Borrowers(txn, *record);
  if (!borrowers.empty()) {
    const size_t shown = std::min(borrowers.size(), kNamesMax);
    std::string names = fmt::format(
        "{}",
        fmt::join(borrowers.begin(), borrowers.begin() + static_cast<ptrdiff_t>(shown), ", "));
    if (shown < borrowers.size()) names += fmt::format(" and {} more", borrowers.size() - shown);
    return Fail(reasons::kTagInUse,
                fmt::format("{} start from tag {} and have no snapshot of their own; suspend them "
                            "after they ran, or delete them",
                            names, key),
                {{"tag", key}, {"actors", fmt::to_string(borrowers.size())}});
  }
  writer.RemoveTag(txn, *record,
                   Fail(reasons::kSuperseded, "tag " + key + " was deleted while it was copied"));
  return record->tag();
}

StatusOr<ateapi::Worker> DrainWorker(Writer& writer, Txn& txn,
                                     const ateapi::DrainWorkerRequest& request) {
  const std::string& name = request.worker().name();
  auto before = txn.Get<torpor::v1::WorkerRecord>(name);
  if (before == nullptr) {
    return Fail(reasons::kWorkerNotFound, "no worker " + name, {{"worker", name}});
  }
  if (before->worker().status().state() == ateapi::WORKER_STATE_DRAINING) {
    return RenderWorker(*before, txn.Allocated(name));
  }
  torpor::v1::WorkerRecord record = *before;
  record.mutable_worker()->mutable_status()->set_state(ateapi::WORKER_STATE_DRAINING);
  auto stored = txn.Put(name, std::move(record));
  writer.CapacityChanged();
  return RenderWorker(*stored, txn.Allocated(name));
}

ateapi::WorkerResources ToResources(const scheduler::Amount& amount) {
  ateapi::WorkerResources resources;
  resources.set_actors(static_cast<int>(amount.actors));
  if (amount.memory_bytes > 0) {
    auto* limit = resources.mutable_resources()->add_limits();
    limit->set_name("memory");
    limit->set_quantity(fmt::to_string(amount.memory_bytes));
  }
  if (amount.cpu_milli > 0) {
    auto* limit = resources.mutable_resources()->add_limits();
    limit->set_name("cpu");
    limit->set_quantity(fmt::format("{}m", amount.cpu_milli));
  }
  return resources;
}

ateapi::Worker RenderWorker(const torpor::v1::WorkerRecord& record,
                            const scheduler::Amount& allocated) {
  ateapi::Worker worker = record.worker();
  *worker.mutable_status()->mutable_allocated() = ToResources(allocated);
  return worker;
}

}  // namespace torpor::control
