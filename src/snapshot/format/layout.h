#pragma once
// Where snapshots lie in object storage, and who may touch them there. Pure functions.
//
//   <location>/atespaces/<atespace>/actors/<actor uid>/snapshots/<generation uuid>
//   <location>/atespaces/<atespace>/tags/<tag uid>
//
// The first component "atespaces" counts, so a location that a tenant chose cannot lie inside
// another tenant's tree: such a location has none itself (CheckStorageLocation).

#include <string>
#include <string_view>

#include "base/status.h"
#include "objstore/uri.h"
#include "torpor/v1/common.pb.h"

namespace torpor::snapshot {

inline constexpr char kGoldenAtespace[] = "ate-golden";

std::string ActorSnapshotUri(std::string_view location, std::string_view atespace,
                             std::string_view actor_uid, std::string_view generation_uuid);
std::string TagSnapshotUri(std::string_view location, std::string_view atespace,
                           std::string_view tag_uid);

// INVALID_ARGUMENT unless it is a well-formed address without a component "atespaces".
Status CheckStorageLocation(std::string_view location);

enum class Owner { kActor, kTag };

struct SnapshotPlace {
  objstore::Uri location;
  std::string atespace;
  Owner owner = Owner::kActor;
  std::string owner_uid;
};

// INVALID_ARGUMENT unless `uri` is the address of one whole snapshot in the form above.
StatusOr<SnapshotPlace> ParseSnapshotUri(std::string_view uri);

// PERMISSION_DENIED STORE_DENIED unless `actor` may write / read a snapshot there: write only below
// its own tree; read there, any tag, and the golden actors.
Status CheckMayWrite(const SnapshotPlace& place, const torpor::v1::ActorIdentity& actor);
Status CheckMayRead(const SnapshotPlace& place, const torpor::v1::ActorIdentity& actor);

}  // namespace torpor::snapshot
