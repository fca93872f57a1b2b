#include "snapshot/load/load.h"

#include "model/reasons.h"
#include "snapshot/load/file_loader.h"
#include "snapshot/load/read_manifest.h"
#include "snapshot/load/staged_files.h"

namespace torpor::snapshot {
namespace {

// Files whose downloads may be under way at once; the budget lets in fewer when they are large.
constexpr size_t kLegsMax = 128;

// What is missing in a snapshot that a record calls complete is lost.
Status MissingIsLoss(Status status) {
  if (status.code() != Code::kNotFound) return status;
  return Fail(reasons::kFailedGetExternalObject, std::string(status.message()));
}

Status LoadOne(const LoadArgs& args, const ManifestFile& file, StagedFiles* staged) {
  FileLoadArgs load;
  load.file = file;
  load.staged = staged;
  load.resources = args.resources;
  load.transfer = args.transfer;
  load.read = ReaderOf(args.store, args.prefix + "/" + file.object->name, file.object->bytes,
                       [transfer = args.transfer] { return transfer->Check(); });
  return LoadFile(load);
}

// Saying it before the download is kinder than failing at the last gigabyte.
Status CheckSpace(const LoadArgs& args, const std::vector<ManifestFile>& files) {
  int64_t needed = 0;
  for (const ManifestFile& file : files) needed += file.file.populated_bytes();
  ASSIGN_OR_RETURN(os::DiskSpace space, args.target->Space());
  if (needed <= space.free_bytes) return OkStatus();
  return Fail(reasons::kDiskFull,
              fmt::format("the snapshot needs {} bytes and {} are free", needed, space.free_bytes));
}

}  // namespace

StatusOr<torpor::v1::FetchResult> LoadSnapshot(const LoadArgs& args) {
  auto committed = ReadManifest(*args.store, args.prefix, args.manifest_sha256);
  if (!committed.ok()) return MissingIsLoss(committed.status());
  const Manifest& manifest = committed->manifest;
  if (args.accept) RETURN_IF_ERROR(args.accept(manifest));
  const bool all = args.fidelity == torpor::v1::FIDELITY_UNSPECIFIED;
  ASSIGN_OR_RETURN(std::vector<ManifestFile> files,
                   NarrowFiles(manifest, all ? manifest.meta.fidelity() : args.fidelity));
  if (!manifest.bases.empty()) {
    return Fail(reasons::kRuntimeIncompatible, "this program does not read snapshots with a base");
  }

  StagedFiles staged(args.target);
  torpor::v1::FetchResult result;
  int64_t fetched = 0;
  for (const ManifestFile& file : files) {
    RETURN_IF_ERROR(staged.CheckFree(file.file.name()));
    *result.add_files() = file.file;
    fetched += file.object->bytes;
  }
  RETURN_IF_ERROR(CheckSpace(args, files));
  args.transfer->AddTotal(fetched);
  RETURN_IF_ERROR(RunLegs(files.size(), kLegsMax, args.transfer, [&](size_t i) {
    return Annotate(LoadOne(args, files[i], &staged), fmt::format("file {}", files[i].file.name()));
  }));
  RETURN_IF_ERROR(args.transfer->Check());
  RETURN_IF_ERROR(staged.Commit());
  *result.mutable_meta() = manifest.meta;
  result.set_fetched_bytes(fetched);
  return result;
}

}  // namespace torpor::snapshot
