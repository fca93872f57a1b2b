#pragma once
// Durable directories around one activation: filled from the snapshot before the guest starts,
// packed into the capture once it stands still. Blocking; one activation at a time per actor.

#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "os/fs/dir_fd.h"
#include "torpor/v1/worker.pb.h"

namespace torpor::worker {

bool HasDurableDirs(const torpor::v1::WorkloadSpec& spec);

// Fills the durable directories, which the agent has made, from the archives in dirs.restore. One
// that is not in the snapshot stays empty; an archive of a volume that the spec does not have any
// more is ignored. INTERNAL when a directory is not empty, DATA_LOSS SNAPSHOT_CORRUPT names the
// volume.
Status UnpackVolumes(const os::DirFd& node_dir, const torpor::v1::StartWorkloadRequest& request,
                     MonotonicTime deadline);

// Writes an archive per durable directory of `start` into `capture`. On failure some may be there.
StatusOr<std::vector<torpor::v1::SnapshotFile>> PackVolumes(
    const os::DirFd& node_dir, const torpor::v1::StartWorkloadRequest& start,
    const os::DirFd& capture, MonotonicTime deadline);

}  // namespace torpor::worker
