#include "worker/volumes.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "model/reasons.h"
#include "snapshot/volume/volume.h"

namespace torpor::worker {
namespace {

using torpor::v1::SnapshotFile;
using torpor::v1::StartWorkloadRequest;
using torpor::v1::VolumeSpec;

StatusOr<os::DirFd> OpenVolume(const os::DirFd& node_dir, const StartWorkloadRequest& request,
                               const VolumeSpec& volume) {
  return node_dir.OpenDir(fmt::format("{}/{}", request.dirs().durable(), volume.name()));
}

Status Named(const VolumeSpec& volume, const Status& status) {
  return Annotate(status, "volume " + volume.name());
}

Status Unpack(const os::DirFd& restore, const std::string& file, const os::DirFd& volume,
              MonotonicTime deadline) {
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> present, volume.List());
  if (!present.empty())
    return Fail(reasons::kInternal, "its directory is not empty before a start");
  ASSIGN_OR_RETURN(UniqueFd archive, restore.OpenRegular(file, O_RDONLY));
  return snapshot::UnpackVolume(archive.get(), volume, deadline);
}

StatusOr<SnapshotFile> Pack(const os::DirFd& volume, const std::string& file,
                            const os::DirFd& capture, MonotonicTime deadline) {
  ASSIGN_OR_RETURN(UniqueFd archive, capture.OpenRegular(file, O_WRONLY | O_CREAT | O_EXCL, 0600));
  ASSIGN_OR_RETURN(snapshot::PackReport report,
                   snapshot::PackVolume(volume, archive.get(), deadline));
  if (report.skipped > 0) {
    LogInfo("sockets, pipes and devices are not part of a snapshot",
            {{"file", file}, {"skipped", fmt::to_string(report.skipped)}});
  }
  struct stat st;
  if (fstat(archive.get(), &st) != 0) return ErrnoStatus(errno, "stat " + file);
  SnapshotFile out;
  out.set_name(file);
  out.set_logical_bytes(st.st_size);
  out.set_populated_bytes(std::min<int64_t>(st.st_size, st.st_blocks * int64_t{512}));
  out.set_needed_from(torpor::v1::FIDELITY_VOLUMES);
  return out;
}

}  // namespace

bool HasDurableDirs(const torpor::v1::WorkloadSpec& spec) {
  return std::any_of(spec.volumes().begin(), spec.volumes().end(),
                     [](const VolumeSpec& volume) { return volume.has_durable_dir(); });
}

Status UnpackVolumes(const os::DirFd& node_dir, const StartWorkloadRequest& request,
                     MonotonicTime deadline) {
  os::DirFd restore;
  for (const VolumeSpec& volume : request.spec().volumes()) {
    if (!volume.has_durable_dir()) continue;
    const std::string file = snapshot::VolumeFileName(volume.name());
    bool captured = std::any_of(request.files().begin(), request.files().end(),
                                [&](const SnapshotFile& listed) { return listed.name() == file; });
    if (!captured) continue;
    if (!restore.valid()) {
      ASSIGN_OR_RETURN(restore, node_dir.OpenDir(request.dirs().restore()));
    }
    ASSIGN_OR_RETURN(os::DirFd directory, OpenVolume(node_dir, request, volume));
    Status status = Unpack(restore, file, directory, deadline);
    if (!status.ok()) return Named(volume, status);
  }
  return OkStatus();
}

StatusOr<std::vector<SnapshotFile>> PackVolumes(const os::DirFd& node_dir,
                                                const StartWorkloadRequest& start,
                                                const os::DirFd& capture, MonotonicTime deadline) {
  std::vector<SnapshotFile> files;
  for (const VolumeSpec& volume : start.spec().volumes()) {
    if (!volume.has_durable_dir()) continue;
    ASSIGN_OR_RETURN(os::DirFd directory, OpenVolume(node_dir, start, volume));
    auto file = Pack(directory, snapshot::VolumeFileName(volume.name()), capture, deadline);
    if (!file.ok()) return Named(volume, file.status());
    files.push_back(*std::move(file));
  }
  return files;
}

}  // namespace torpor::worker
