#include "snapshot/format/layout.h"

#include "base/uuid.h"
#include "model/names.h"
#include "model/reasons.h"

namespace torpor::snapshot {
namespace {

constexpr char kAtespaces[] = "atespaces";

Status Bad(std::string_view message) { return Fail(reasons::kFieldInvalid, message); }

std::vector<std::string> Split(const std::string& path) {
  std::vector<std::string> out;
  for (size_t begin = 0; begin < path.size();) {
    size_t end = std::min(path.find('/', begin), path.size());
    out.push_back(path.substr(begin, end - begin));
    begin = end + 1;
  }
  return out;
}

std::string WithoutSlash(std::string_view location) {
  // file:/// keeps its slashes; what follows begins with one of its own.
  if (!location.empty() && location.back() == '/') location.remove_suffix(1);
  return std::string(location);
}

}  // namespace

std::string ActorSnapshotUri(std::string_view location, std::string_view atespace,
                             std::string_view actor_uid, std::string_view generation_uuid) {
  return fmt::format("{}/{}/{}/actors/{}/snapshots/{}", WithoutSlash(location), kAtespaces,
                     atespace, actor_uid, generation_uuid);
}

std::string TagSnapshotUri(std::string_view location, std::string_view atespace,
                           std::string_view tag_uid) {
  return fmt::format("{}/{}/{}/tags/{}", WithoutSlash(location), kAtespaces, atespace, tag_uid);
}

Status CheckStorageLocation(std::string_view location) {
  ASSIGN_OR_RETURN(objstore::Uri uri, objstore::ParseUri(location));
  for (const std::string& component : Split(uri.path)) {
    if (component == kAtespaces) {
      return Bad("a storage location must not contain the component 'atespaces'");
    }
  }
  return OkStatus();
}

StatusOr<SnapshotPlace> ParseSnapshotUri(std::string_view text) {
  ASSIGN_OR_RETURN(objstore::Uri uri, objstore::ParseUri(text));
  const std::vector<std::string> parts = Split(uri.path);
  const auto begin = std::find(parts.begin(), parts.end(), kAtespaces);
  const std::vector<std::string> tail(begin, parts.end());
  SnapshotPlace place;
  const bool actor = tail.size() == 6 && tail[2] == "actors" && IsUuid(tail[3]) &&
                     tail[4] == "snapshots" && IsUuid(tail[5]);
  const bool tag = tail.size() == 4 && tail[2] == "tags" && IsUuid(tail[3]);
  if ((!actor && !tag) || !IsLabel(tail[1])) {
    return Bad(
        "not the address of a snapshot: it must end with "
        "/atespaces/ATESPACE/actors/UID/snapshots/UUID or /atespaces/ATESPACE/tags/UID");
  }
  place.location = uri;
  place.location.path.clear();
  for (auto it = parts.begin(); it != begin; ++it) {
    place.location.path += (place.location.path.empty() ? "" : "/") + *it;
  }
  place.atespace = tail[1];
  place.owner = actor ? Owner::kActor : Owner::kTag;
  place.owner_uid = tail[3];
  return place;
}

Status CheckMayWrite(const SnapshotPlace& place, const torpor::v1::ActorIdentity& actor) {
  if (place.owner == Owner::kActor && place.atespace == actor.atespace() &&
      place.owner_uid == actor.uid()) {
    return OkStatus();
  }
  return Fail(reasons::kStoreDenied, "a snapshot is written only below the tree of its own actor",
              {{"actor", actor.uid()}});
}

Status CheckMayRead(const SnapshotPlace& place, const torpor::v1::ActorIdentity& actor) {
  if (place.owner == Owner::kTag || place.atespace == kGoldenAtespace) return OkStatus();
  if (place.atespace == actor.atespace() && place.owner_uid == actor.uid()) return OkStatus();
  return Fail(reasons::kStoreDenied, "a snapshot of another actor is read only through a tag",
              {{"actor", actor.uid()}});
}

}  // namespace torpor::snapshot
