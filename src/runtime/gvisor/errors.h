#pragma once
// What a failed runsc command means. The one place where its texts are understood.

#include <string>
#include <string_view>

#include "base/status.h"
#include "os/process/process.h"

namespace torpor::gvisor {

// `output` is what the command said: the tail of its log and its standard error.
// DATA_LOSS SNAPSHOT_CORRUPT when an image cannot be read, FAILED_PRECONDITION RUNTIME_INCOMPATIBLE
// when it belongs to another runsc or other settings, RESOURCE_EXHAUSTED DISK_FULL, INTERNAL
// INVALID_CONTAINER_CONFIG when the program of the container cannot be started, else INTERNAL
// RUNTIME_FAILED. The message holds the verb, how it ended and its last words.
Status MapRunsc(std::string_view verb, const os::ExitStatus& exit, std::string_view output);

// The messages of the last `lines` lines of a runsc log (JSON or plain), oldest first. Empty when
// there is no such file.
std::string LogTail(const std::string& path, int lines);

}  // namespace torpor::gvisor
