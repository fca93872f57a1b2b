#include "snapshot/save/save.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>

#include "base/log.h"
#include "model/reasons.h"
#include "snapshot/format/sha256.h"
#include "snapshot/save/encode.h"
#include "snapshot/save/object_writer.h"

namespace torpor::snapshot {
namespace {

std::string ObjectName(const std::string& file) { return file + ".zst"; }

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

Status SaveFile(const SaveArgs& args, ManifestFile* entry) {
  ASSIGN_OR_RETURN(FileGate::Place place, args.gate->Enter(Urgency::kUpload, *args.transfer));
  const int64_t logical = entry->file.logical_bytes();
  ASSIGN_OR_RETURN(UniqueFd fd, OpenSource(*args.source, entry->file.name()));
  struct stat st;
  if (fstat(fd.get(), &st) != 0) return ErrnoStatus(errno, "stat");
  if (st.st_size != logical) {
    return Fail(reasons::kSnapshotCorrupt,
                fmt::format("it has {} bytes, not {}", static_cast<int64_t>(st.st_size), logical));
  }
  ASSIGN_OR_RETURN(UploadPath path, PlanUpload(EncodedBound(logical)));
  const std::string name = ObjectName(entry->file.name());
  ObjectWriter writer(args.store, args.prefix + "/" + name, path);
  EncodeOptions options;
  options.zstd_level = args.zstd_level;
  options.threads = static_cast<int>(std::min<size_t>(Cores(), 4));
  ASSIGN_OR_RETURN(int64_t populated,
                   EncodeFile(fd.get(), logical, options, args.transfer,
                              [&](std::string_view bytes) { return writer.Append(bytes); }));
  ASSIGN_OR_RETURN(ManifestObject object, writer.Finish());
  object.name = name;
  entry->file.set_populated_bytes(populated);
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
  RETURN_IF_ERROR(RunLegs(args->manifest.files.size(), Cores(), args->transfer, [&](size_t i) {
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
