#include "agent/request_check.h"

#include <set>

#include <fmt/format.h>

#include "agent/image_store.h"
#include "base/uuid.h"
#include "model/names.h"

namespace torpor::agent {
namespace {

using Violations = std::vector<FieldViolation>;

void Want(Violations& out, bool good, std::string field, std::string_view must) {
  if (!good) out.push_back({std::move(field), std::string(must)});
}

Status Result(const Violations& violations) {
  if (violations.empty()) return OkStatus();
  return InvalidFields("FIELD_INVALID", violations);
}

constexpr char kLabelRule[] = "must be a label: 1 to 63 of a-z 0-9 -";

void WantHeader(Violations& out, const torpor::v1::OpHeader& header) {
  Want(out, IsUuid(header.op_id()), "op.op_id", "must be a lower-case uuid");
  Want(out, IsUuid(header.actor_uid()), "op.actor_uid", "must be a lower-case uuid");
  Want(out, header.generation() >= 0, "op.generation", "must not be negative");
  Want(out, header.timeout().seconds() >= 0 && header.timeout().seconds() <= 86400 * 7,
       "op.timeout", "must be from 0 to 7 days");
}

void WantActor(Violations& out, const torpor::v1::OpHeader& header,
               const torpor::v1::ActorIdentity& actor) {
  WantHeader(out, header);
  Want(out, actor.uid() == header.actor_uid(), "actor.uid", "must equal op.actor_uid");
  Want(out, IsLabel(actor.atespace()), "actor.atespace", kLabelRule);
  Want(out, IsLabel(actor.name()), "actor.name", kLabelRule);
}

void WantContainers(Violations& out, const torpor::v1::WorkloadSpec& spec) {
  Want(out, spec.containers_size() >= 1 && spec.containers_size() <= 10, "spec.containers",
       "must be 1 to 10");
  std::set<std::string> names;
  for (int i = 0; i < spec.containers_size(); ++i) {
    const auto& container = spec.containers(i);
    const std::string field = fmt::format("spec.containers[{}]", i);
    Want(out, IsLabel(container.name()) && container.name() != "pause", field + ".name",
         kLabelRule);
    Want(out, names.insert(container.name()).second, field + ".name", "must be unique");
    Want(out, DigestOfReference(container.image()).ok(), field + ".image",
         "must be pinned: NAME@sha256:<digest>");
    for (const auto& mount : container.volume_mounts()) {
      const std::string& path = mount.mount_path();
      Want(out, IsLabel(mount.name()), field + ".volume_mounts.name", kLabelRule);
      Want(out, path.size() > 1 && path[0] == '/' && IsCleanRelativePath(path.substr(1)),
           field + ".volume_mounts.mount_path", "must be absolute and normalised, not /");
    }
    for (const auto& entry : container.env()) {
      Want(out,
           !entry.name().empty() &&
               entry.name().find_first_of(std::string("=\0", 2)) == std::string::npos &&
               entry.value().find('\0') == std::string::npos,
           field + ".env", "must be NAME and value without NUL, the name without =");
    }
  }
}

}  // namespace

Status CheckHeader(const torpor::v1::OpHeader& header) {
  Violations out;
  WantHeader(out, header);
  return Result(out);
}

Status CheckRequest(const torpor::v1::StartActorRequest& request) {
  Violations out;
  WantActor(out, request.op(), request.actor());
  Want(out, !request.worker_uid().empty(), "worker_uid", "must be set");
  WantContainers(out, request.spec());
  std::set<std::string> names;
  for (const auto& volume : request.spec().volumes()) {
    Want(out, IsLabel(volume.name()), "spec.volumes.name", kLabelRule);
    Want(out, names.insert(volume.name()).second, "spec.volumes.name", "must be unique");
    if (volume.has_image()) {
      Want(out, DigestOfReference(volume.image().reference()).ok(), "spec.volumes.image.reference",
           "must be pinned: NAME@sha256:<digest>");
    }
    for (const auto& data : volume.system_info().data_sources()) {
      for (const auto& item : data.actor_metadata().items()) {
        Want(out, IsCleanRelativePath(item.path()), "spec.volumes.system_info.path",
             "must be relative and normalised");
      }
      if (data.has_trust_bundle()) {
        Want(out, IsCleanRelativePath(data.trust_bundle().path()), "spec.volumes.system_info.path",
             "must be relative and normalised");
      }
    }
  }
  for (const auto& source : request.sources()) {
    Want(out, source.has_local_name() || source.has_durable(), "sources", "must say where it is");
    if (source.has_local_name()) {
      Want(out, IsLabel(source.local_name()), "sources.local_name", kLabelRule);
    }
    Want(out, source.generation() == request.sources(0).generation(), "sources.generation",
         "must be the same in all sources");
  }
  return Result(out);
}

Status CheckRequest(const torpor::v1::CaptureActorRequest& request) {
  Violations out;
  WantActor(out, request.op(), request.actor());
  Want(out, !request.worker_uid().empty(), "worker_uid", "must be set");
  Want(out, IsLabel(request.snapshot_name()), "snapshot_name", kLabelRule);
  Want(out, request.fidelity() != torpor::v1::FIDELITY_UNSPECIFIED, "fidelity", "must be set");
  return Result(out);
}

Status CheckRequest(const torpor::v1::UploadSnapshotRequest& request) {
  Violations out;
  WantActor(out, request.op(), request.actor());
  Want(out, IsLabel(request.snapshot_name()), "snapshot_name", kLabelRule);
  Want(out, !request.uri().empty() && request.uri().size() <= 2048, "uri",
       "must be 1 to 2048 characters");
  return Result(out);
}

Status CheckRequest(const torpor::v1::StopActorRequest& request) {
  Violations out;
  WantHeader(out, request.op());
  Want(out, request.actor().uid() == request.op().actor_uid(), "actor.uid",
       "must equal op.actor_uid");
  return Result(out);
}

Status CheckRequest(const torpor::v1::DeleteLocalSnapshotsRequest& request) {
  Violations out;
  WantHeader(out, request.op());
  for (const std::string& name : request.snapshot_names()) {
    Want(out, IsLabel(name), "snapshot_names", kLabelRule);
  }
  return Result(out);
}

}  // namespace torpor::agent
