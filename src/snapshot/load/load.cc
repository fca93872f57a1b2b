#include "snapshot/load/load.h"

#include "model/reasons.h"
#include "snapshot/format/sha256.h"
#include "snapshot/load/decode.h"
#include "snapshot/load/read_manifest.h"
#include "snapshot/load/staged_files.h"

namespace torpor::snapshot {
namespace {

// What is missing in a snapshot that a record calls complete is lost.
Status MissingIsLoss(Status status) {
  if (status.code() != Code::kNotFound) return status;
  return Fail(reasons::kFailedGetExternalObject, std::string(status.message()));
}

Status LoadFile(const LoadArgs& args, const ManifestFile& file, StagedFiles* staged) {
  ASSIGN_OR_RETURN(FileGate::Place place, args.gate->Enter(Urgency::kDownload, *args.transfer));
  ASSIGN_OR_RETURN(UniqueFd fd, staged->Create(file.file.name(), file.mode));
  Decoder decoder(fd.get(), file.file.logical_bytes());
  RETURN_IF_ERROR(decoder.Init());
  const ManifestObject& object = *file.object;
  Sha256 sha;
  int64_t received = 0;
  auto take = [&](std::string_view piece) -> Status {
    RETURN_IF_ERROR(args.transfer->Check());
    received += static_cast<int64_t>(piece.size());
    sha.Update(piece);
    args.transfer->Advance(static_cast<int64_t>(piece.size()));
    return decoder.Append(piece);
  };
  // Never more than the manifest says, whatever lies in the store.
  auto info = args.store->Get(args.prefix + "/" + object.name, {0, object.bytes}, take);
  if (!info.ok()) return MissingIsLoss(info.status());
  if (info->bytes != object.bytes || received != object.bytes) {
    return Fail(reasons::kSnapshotCorrupt,
                fmt::format("its object has {} bytes, not {}", info->bytes, object.bytes));
  }
  RETURN_IF_ERROR(decoder.Finish());
  if (sha.FinishHex() != object.sha256) {
    return Fail(reasons::kSnapshotCorrupt, "the sha256 of its object differs from the manifest");
  }
  return OkStatus();
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
  RETURN_IF_ERROR(RunLegs(files.size(), Cores(), args.transfer, [&](size_t i) {
    return Annotate(LoadFile(args, files[i], &staged),
                    fmt::format("file {}", files[i].file.name()));
  }));
  RETURN_IF_ERROR(args.transfer->Check());
  RETURN_IF_ERROR(staged.Commit());
  *result.mutable_meta() = manifest.meta;
  result.set_fetched_bytes(fetched);
  return result;
}

}  // namespace torpor::snapshot
