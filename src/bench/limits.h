#pragma once
// Physical limits of the machine that need no sandbox; those that need one are in bare.h and
// runner.h. Each takes a directory of its own on the file system of the snapshots and removes it.

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "bench/result.h"

namespace torpor::bench {

using Stopped = std::function<bool()>;
using MeasureLimit = StatusOr<std::vector<Limit>> (*)(const std::string& dir,
                                                      const Stopped& stopped);

// L4: memcpy of 256 MiB between buffers that were touched before, one thread and all cores.
StatusOr<std::vector<Limit>> MeasureMemcpy(const std::string& dir, const Stopped& stopped);
// L5: zstd on the largest file below `image_dir`, as program and as library.
StatusOr<std::vector<Limit>> MeasureZstd(const std::string& image_dir, const std::string& dir,
                                         const Stopped& stopped);
// L6: writes and reads of 1 GiB, a small durable write, a durable publication of a file.
StatusOr<std::vector<Limit>> MeasureDisk(const std::string& dir, const Stopped& stopped);
// L8: commits of SQLite with synchronous FULL, of one row and of a group of 16.
StatusOr<std::vector<Limit>> MeasureStore(const std::string& dir, const Stopped& stopped);

// Those that need nothing but a directory, by name.
std::vector<std::pair<std::string, MeasureLimit>> MachineLimits();

}  // namespace torpor::bench
