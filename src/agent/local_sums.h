#pragma once
// sums.json of a LOCAL generation: what its files must be after a reboot of the machine.
//
// The files of a capture are not flushed (node.md 3), so after a power cut they may look right and
// hold holes. Sizes and XXH3-128 of all of them, computed after the capture was acknowledged, tell.
// Functions are thread-safe for different directories.

#include <functional>
#include <string>

#include "base/status.h"
#include "os/fs/dir_fd.h"
#include "snapshot/format/manifest.h"
#include "torpor/v1/agent.pb.h"

namespace torpor::agent {

// Sums of manifest.json and of every file that it names. CANCELLED as soon as `stop` (may be empty)
// says so; it is asked about every MiB.
StatusOr<torpor::v1::LocalSums> ComputeSums(const os::DirFd& snapshot,
                                            const snapshot::Manifest& manifest,
                                            const std::function<bool()>& stop);

// The sums that lie in the directory; DATA_LOSS when they are torn, NOT_FOUND when there are none.
StatusOr<torpor::v1::LocalSums> ReadSums(const os::DirFd& snapshot);

// Whether `sums` names exactly the files of `manifest` with their sizes, and each lies there with
// its size. Reads no content. DATA_LOSS LOCAL_SNAPSHOT_GONE.
Status CheckSizes(const os::DirFd& snapshot, const snapshot::Manifest& manifest,
                  const torpor::v1::LocalSums& sums);
// CheckSizes, and every byte.
Status CheckSums(const os::DirFd& snapshot, const snapshot::Manifest& manifest,
                 const torpor::v1::LocalSums& sums);

}  // namespace torpor::agent
