#include "snapshot/admin/admin.h"

#include "model/reasons.h"
#include "snapshot/format/layout.h"
#include "snapshot/load/passing_object.h"
#include "snapshot/load/read_index.h"
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

// Every block is checked on its way, and the object is committed only when all were right.
Status CopyBetween(const Place& from, const Place& to, const ManifestFile& file) {
  const ManifestObject& object = *file.object;
  const std::string key = from.key + "/" + object.name;
  const RangeReader read = ReaderOf(from.store.get(), key, object.bytes, {});
  ASSIGN_OR_RETURN(ObjectTail tail, ReadTail(read, object.bytes));
  ASSIGN_OR_RETURN(std::string end, ReadIndexFrame(read, tail, object.index_sha256));
  ASSIGN_OR_RETURN(TszIndex index,
                   DecodeTszIndex(end, {file.file.logical_bytes(), tail.footer.index_offset}));
  PassingObject passing(std::move(index), end + EncodeTszFooter(tail.footer));

  ASSIGN_OR_RETURN(UploadPlan plan,
                   PlanUpload(BoundOfCopy(object.bytes), StoreLimits(), kUploadPartBytes));
  ByteBudget one_part(plan.minimum_bytes, Clock::Real());
  BufferPool buffers(&one_part);
  ObjectWriter writer(to.store.get(), to.key + "/" + object.name, plan, {&buffers});
  auto info = from.store->Get(key, {0, object.bytes}, [&](std::string_view piece) -> Status {
    RETURN_IF_ERROR(passing.Update(piece));
    return writer.Append(piece);
  });
  RETURN_IF_ERROR(info.status());
  if (info->bytes != object.bytes) return WrongSize(object, info->bytes);
  RETURN_IF_ERROR(passing.Finish());
  return writer.Finish();
}

Status CopyObject(const Place& from, const Place& to, const ManifestFile& file) {
  const ManifestObject& object = *file.object;
  Status status;
  if (from.store != to.store) {
    status = Annotate(CopyBetween(from, to, file), fmt::format("object {}", object.name));
  } else {
    status = from.store->Copy(from.key + "/" + object.name, to.key + "/" + object.name);
    if (status.ok()) {
      ASSIGN_OR_RETURN(objstore::ObjectInfo info, to.store->Head(to.key + "/" + object.name));
      if (info.bytes != object.bytes) status = WrongSize(object, info.bytes);
    }
  }
  // The manifest is there, so a missing object is damage.
  const bool missing = status.code() == Code::kNotFound ||
                       ReasonOf(status) == reasons::kFailedGetExternalObject.name;
  if (!missing) return status;
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
    RETURN_IF_ERROR(CopyObject(from, to, file));
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
