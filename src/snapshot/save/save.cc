#include "snapshot/save/save.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/log.h"
#include "model/reasons.h"
#include "snapshot/format/sha256.h"
#include "snapshot/save/encode.h"
#include "snapshot/save/object_writer.h"
#include "snapshot/save/plan.h"

namespace torpor::snapshot {
namespace {

// Files whose uploads may be under way at once; the budget lets in fewer when they are large.
constexpr size_t kLegsMax = 128;
constexpr int64_t kManifestSlackBytes = 64 << 10;

std::string ObjectName(const std::string& file) { return file + ".tsz"; }

// What is wrong with a captured file is wrong with the capture, not with the request.
StatusOr<UniqueFd> OpenSource(const os::DirFd& source, const std::string& name) {
  auto fd = source.OpenRegular(name, O_RDONLY);
  switch (fd.status().code()) {
    case Code::kNotFound:
      return Fail(reasons::kLocalSnapshotGone, std::string(fd.status().message()));
    case Code::kInvalidArgument:     // a link
    case Code::kFailedPrecondition:  // not a regular file
      return Fail(reasons::kSnapshotCorrupt, std::string(fd.status().message()));
    default:
      return fd;
  }
}

StatusOr<UniqueFd> OpenChecked(const SaveArgs& args, const torpor::v1::SnapshotFile& file) {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenSource(*args.source, file.name()));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, "stat");
  if (st.st_size != file.logical_bytes()) {
    return Fail(reasons::kSnapshotCorrupt,
                fmt::format("it has {} bytes, not {}", static_cast<int64_t>(st.st_size),
                            file.logical_bytes()));
  }
  return fd;
}

Status SaveFile(const SaveArgs& args, ManifestFile* entry) {
  ASSIGN_OR_RETURN(UniqueFd fd, OpenChecked(args, entry->file));
  EncodeArgs encode;
  encode.fd = fd.get();
  encode.logical_bytes = entry->file.logical_bytes();
  encode.resources = args.resources;
  encode.transfer = args.transfer;
  ASSIGN_OR_RETURN(ScanTotals totals, ScanFile(fd.get(), encode.logical_bytes, *args.transfer));
  encode.bound = BoundOf(totals);
  ByteBudget* memory = args.resources->memory();
  ASSIGN_OR_RETURN(encode.plan, PlanUpload(encode.bound, StoreLimits(), memory->total()));
  ASSIGN_OR_RETURN(ByteBudget::Hold hold,
                   memory->Admit(Urgency::kUpload, encode.plan.minimum_bytes, *args.transfer));
  encode.hold = &hold;
  ManifestObject object;
  object.name = ObjectName(entry->file.name());
  // From here on something may lie there, also after an error.
  entry->object = object;
  ObjectWriter writer(args.store, args.prefix + "/" + object.name, encode.plan,
                      {args.resources->buffers(), args.resources->senders(), &hold});
  ASSIGN_OR_RETURN(EncodedFile encoded, EncodeFile(encode, &writer));
  RETURN_IF_ERROR(writer.Finish());
  object.bytes = writer.bytes();
  object.index_sha256 = encoded.index_sha256;
  entry->file.set_populated_bytes(encoded.populated_bytes);
  entry->object = std::move(object);
  return OkStatus();
}

// Removes the objects of a failed save. A manifest there means that another save won.
void RemoveObjects(const SaveArgs& args) {
  auto manifest = args.store->Head(args.prefix + "/" + kManifestName);
  if (manifest.status().code() != Code::kNotFound) return;
  for (const ManifestFile& entry : args.manifest.files) {
    if (!entry.object.has_value()) continue;
    Status status = args.store->Delete(args.prefix + "/" + entry.object->name);
    if (!status.ok()) {
      LogWarning("an object of a failed upload stays until the next sweep",
                 {{"object", entry.object->name}, {"error", std::string(status.message())}});
    }
  }
}

Status Commit(const SaveArgs& args, const std::string& text) {
  ASSIGN_OR_RETURN(ByteBudget::Hold hold,
                   args.resources->memory()->Admit(
                       Urgency::kCommit, static_cast<int64_t>(text.size()) + kManifestSlackBytes,
                       *args.transfer));
  const std::string key = std::string(args.prefix) + "/" + kManifestName;
  Status put = args.store->Put(key, text, {.if_absent = true});
  if (!put.ok() && put.code() != Code::kFailedPrecondition) return put;
  // Read back in both cases: a reply may have been lost, and a commit must be readable.
  ASSIGN_OR_RETURN(std::string there, objstore::ReadAll(*args.store, key, kManifestBytesMax));
  if (there == text) return OkStatus();
  if (put.ok()) {
    return Fail(reasons::kSnapshotCorrupt, "the manifest reads back differently; check the store");
  }
  return Fail(reasons::kSnapshotIdentity, "another snapshot is committed at this address");
}

StatusOr<torpor::v1::UploadResult> Save(SaveArgs* args) {
  for (const ManifestFile& file : args->manifest.files) {
    args->transfer->AddTotal(file.file.logical_bytes());
  }
  RETURN_IF_ERROR(RunLegs(args->manifest.files.size(), kLegsMax, args->transfer, [&](size_t i) {
    ManifestFile* entry = &args->manifest.files[i];
    return Annotate(SaveFile(*args, entry), fmt::format("save {}", entry->file.name()));
  }));
  RETURN_IF_ERROR(args->transfer->Check());
  ASSIGN_OR_RETURN(std::string text, SerializeManifest(args->manifest));
  RETURN_IF_ERROR(Commit(*args, text));
  torpor::v1::UploadResult result = ResultOf(args->manifest, text);
  result.set_sent_bytes(result.stored_bytes());
  return result;
}

}  // namespace

torpor::v1::UploadResult ResultOf(const Manifest& manifest, std::string_view manifest_text) {
  torpor::v1::UploadResult result;
  result.set_manifest_sha256(Sha256Hex(manifest_text));
  result.set_fidelity(manifest.meta.fidelity());
  int64_t logical = 0;
  int64_t stored = static_cast<int64_t>(manifest_text.size());
  for (const ManifestFile& file : manifest.files) {
    logical += file.file.logical_bytes();
    if (file.object.has_value()) stored += file.object->bytes;
  }
  result.set_logical_bytes(logical);
  result.set_stored_bytes(stored);
  return result;
}

StatusOr<torpor::v1::UploadResult> SaveSnapshot(SaveArgs args) {
  // A manifest that could not be read back must not cost an upload first.
  RETURN_IF_ERROR(SerializeManifest(args.manifest).status());
  auto result = Save(&args);
  if (!result.ok()) RemoveObjects(args);
  return result;
}

}  // namespace torpor::snapshot
