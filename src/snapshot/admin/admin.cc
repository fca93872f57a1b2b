#include "snapshot/admin/admin.h"

#include "model/reasons.h"
#include "snapshot/format/layout.h"
#include "snapshot/load/read_manifest.h"
#include "snapshot/save/object_writer.h"

namespace torpor::snapshot {
namespace {

using objstore::Place;

// More than any snapshot has; a prefix with more objects is not one.
constexpr size_t kObjectsMax = 2 * kManifestFilesMax;

StatusOr<Place> Resolve(const objstore::StoreRegistry& stores, const std::string& uri) {
  RETURN_IF_ERROR(ParseSnapshotUri(uri).status());
  return stores.Resolve(uri);
}

std::string ManifestKey(const Place& place) { return place.key + "/" + kManifestName; }

Status WrongSize(const ManifestObject& object, int64_t bytes) {
  return Fail(reasons::kSnapshotCorrupt,
              fmt::format("object {} has {} bytes, not {}", object.name, bytes, object.bytes));
}

Status CopyBetween(const Place& from, const Place& to, const ManifestObject& object) {
  ASSIGN_OR_RETURN(UploadPath path, PlanUpload(object.bytes));
  ObjectWriter writer(to.store.get(), to.key + "/" + object.name, path);
  auto info = from.store->Get(from.key + "/" + object.name, {0, object.bytes},
                              [&](std::string_view piece) { return writer.Append(piece); });
  RETURN_IF_ERROR(info.status());
  if (info->bytes != object.bytes) return WrongSize(object, info->bytes);
  if (writer.FinishSha256() != object.sha256) {
    return Fail(reasons::kSnapshotCorrupt,
                fmt::format("object {} has another sha256 than the manifest says", object.name));
  }
  return writer.Finish().status();
}

Status CopyObject(const Place& from, const Place& to, const ManifestObject& object) {
  Status status;
  if (from.store != to.store) {
    status = CopyBetween(from, to, object);
  } else {
    status = from.store->Copy(from.key + "/" + object.name, to.key + "/" + object.name);
    if (status.ok()) {
      ASSIGN_OR_RETURN(objstore::ObjectInfo info, to.store->Head(to.key + "/" + object.name));
      if (info.bytes != object.bytes) status = WrongSize(object, info.bytes);
    }
  }
  // The manifest is there, so a missing object is damage.
  if (status.code() != Code::kNotFound) return status;
  return Fail(reasons::kSnapshotCorrupt, std::string(status.message()));
}

}  // namespace

StatusOr<CopyResult> CopySnapshot(const objstore::StoreRegistry& stores,
                                  const std::string& from_uri, const std::string& to_uri,
                                  const std::string& manifest_sha256) {
  ASSIGN_OR_RETURN(Place from, Resolve(stores, from_uri));
  ASSIGN_OR_RETURN(Place to, Resolve(stores, to_uri));
  ASSIGN_OR_RETURN(CommittedManifest source, ReadManifest(*from.store, from.key, manifest_sha256));
  CopyResult result{source.sha256, static_cast<int64_t>(source.text.size())};
  for (const ManifestFile& file : source.manifest.files) result.stored_bytes += file.object->bytes;
  if (!source.manifest.bases.empty()) {
    return Fail(reasons::kNotImplemented, "snapshots with a base are not copied");
  }
  auto there = objstore::ReadAll(*to.store, ManifestKey(to), kManifestBytesMax);
  if (there.ok() && *there == source.text) return result;
  if (there.ok()) {
    return Fail(reasons::kWrongState, "another snapshot is committed at the target address");
  }
  if (there.status().code() != Code::kNotFound) return there.status();
  for (const ManifestFile& file : source.manifest.files) {
    RETURN_IF_ERROR(CopyObject(from, to, *file.object));
  }
  Status put = to.store->Put(ManifestKey(to), source.text, {.if_absent = true});
  if (put.code() != Code::kFailedPrecondition) {
    RETURN_IF_ERROR(put);
    return result;
  }
  // Somebody was faster; the same copy is as good as ours.
  ASSIGN_OR_RETURN(std::string winner,
                   objstore::ReadAll(*to.store, ManifestKey(to), kManifestBytesMax));
  if (winner == source.text) return result;
  return Fail(reasons::kWrongState, "another snapshot was committed at the target address");
}

Status DeleteSnapshot(const objstore::StoreRegistry& stores, const std::string& uri) {
  ASSIGN_OR_RETURN(Place at, Resolve(stores, uri));
  // A list may miss what was written lately; the manifest does not.
  auto committed = ReadManifest(*at.store, at.key, "");
  RETURN_IF_ERROR(at.store->Delete(ManifestKey(at)));
  if (committed.ok()) {
    for (const ManifestFile& file : committed->manifest.files) {
      RETURN_IF_ERROR(at.store->Delete(at.key + "/" + file.object->name));
    }
  }
  ASSIGN_OR_RETURN(auto rest, objstore::ListAll(*at.store, at.key, kObjectsMax));
  for (const objstore::ObjectInfo& object : rest) RETURN_IF_ERROR(at.store->Delete(object.key));
  return OkStatus();
}

}  // namespace torpor::snapshot
