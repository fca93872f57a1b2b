#pragma once
// The files of a memory image, and how they are read and written.

#include <string>
#include <vector>

#include "base/status.h"
#include "torpor/v1/common.pb.h"

namespace torpor::gvisor {

inline constexpr char kStateFile[] = "checkpoint.img";
inline constexpr char kPagesFile[] = "pages.img";

// Whether image pages bypass the page cache (O_DIRECT). Writing directly charges no page cache to
// the actor's memory limit and has no slow mode; reading directly is right unless nearly all of the
// file is cached already, when it would only read the disk again.
struct DirectInput {
  bool flag = false;         // runsc has -direct for this verb
  bool file_system = false;  // accepts O_DIRECT
  double cached = 0;         // fraction of the pages file that is in the page cache; 0 for a write
};
bool UseDirect(const DirectInput& input);

// True when files in `directory` can be opened with O_DIRECT.
bool SupportsDirect(const std::string& directory, bool writable);
// Fraction of the file that is cached; 0 when it is missing or the kernel cannot tell.
double CachedFraction(const std::string& path);

// True when less than 1 MiB is free for us on the file system.
bool IsFull(const std::string& directory);

// What runsc wrote. INTERNAL INVALID_CHECKPOINT_RESULT when it is not what an image consists of.
StatusOr<std::vector<torpor::v1::SnapshotFile>> ListImage(const std::string& directory);
// Before a restore: `files` are there, regular and as large as they should be, and the state file
// begins like one. DATA_LOSS SNAPSHOT_CORRUPT names the file.
Status CheckImage(const std::string& directory, const std::vector<torpor::v1::SnapshotFile>& files);

}  // namespace torpor::gvisor
