#pragma once
// What a tree takes on the disk, and what is mounted where.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "os/fs/dir_fd.h"

namespace torpor::os {

struct TreeUsage {
  int64_t bytes = 0;  // allocated blocks, not lengths
  int64_t inodes = 0;
  bool complete = true;  // false when something could not be read: it is at least this much
};

// Of the directory `path` below `dir` and all below it. Follows no link, crosses no mount.
// NOT_FOUND when there is none. Thread-safe.
StatusOr<TreeUsage> MeasureTree(const DirFd& dir, std::string_view path);

// The mount points in the text of a /proc/<pid>/mountinfo. DATA_LOSS for a line that is none: then
// nobody knows what is mounted. Pure.
StatusOr<std::vector<std::string>> ParseMountPoints(std::string_view mountinfo);
// Those of this process that lie at or below the absolute path `top`.
StatusOr<std::vector<std::string>> MountsBelow(const std::string& top);

}  // namespace torpor::os
