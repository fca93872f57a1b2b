#pragma once
// The content of a durable directory as one file of a snapshot: a tar archive in the pax format.
//
// Regular files (holes stay holes), directories, symbolic and hard links, with owner, permission
// bits, modification time in nanoseconds and extended attributes user.*. Sockets, pipes and devices
// are left out: nothing of them survives a stop. The archive is written by us and read by us, but
// it comes back from object storage, and its names were chosen by a guest: unpacking trusts nothing
// and never writes outside `root`.
//
// The functions block, use a few MiB of memory, and never flush. Thread-safe for different
// directories; nobody else may change the directory meanwhile.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/time.h"
#include "os/fs/dir_fd.h"

namespace torpor::snapshot {

// "volume-<name>.tar"
std::string VolumeFileName(std::string_view volume);

struct PackReport {
  int64_t entries = 0;
  int64_t skipped = 0;  // sockets, pipes, devices
};

// Writes all of `root` to `out`, an empty regular file. Errors are those of the failing call with
// the path inside the volume: DISK_FULL, DEADLINE_EXCEEDED; FAILED_PRECONDITION for what an archive
// cannot hold (a path of more than 4,000 bytes, more than 4 Mi entries).
StatusOr<PackReport> PackVolume(const os::DirFd& root, int out, MonotonicTime deadline);

// Fills `root`, which is empty, from the archive at the current offset of `in`. DATA_LOSS
// SNAPSHOT_CORRUPT for an archive that PackVolume does not write: names that are absolute or have
// "..", entries out of order, devices, damage, a missing end. Set-user-id and set-group-id bits of
// files are cleared. On failure `root` holds part of the content.
Status UnpackVolume(int in, const os::DirFd& root, MonotonicTime deadline);

}  // namespace torpor::snapshot
