#pragma once
// What happens to the files of a restore directory once the guest has loaded them.

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace torpor::gvisor {

inline constexpr int64_t kBigImageBytes = 1 << 20;

enum class Staged {
  kKeep,      // only its page cache goes
  kTruncate,  // truncate, then unlink: drops dirty pages without writing them
  kUnlink,    // after its page cache went; the content belongs to another name as well
};

// Only `preserve` decides whether a file may go; the number of links decides about truncating, and
// a small file stays until the directory is reset. Seen elsewhere: a clean-up that went by links
// alone would have emptied the only copy of a snapshot.
Staged DecideStaged(bool preserve, uint64_t links, int64_t bytes);

// Does it, unless another file than `pin` has the name by now.
void RemoveStaged(const std::string& path, const struct stat& pin, Staged staged);

}  // namespace torpor::gvisor
