#pragma once
// Paths of unix sockets beyond the 107 bytes that sockaddr_un holds: such a path is reached through
// /proc/self/fd of its directory.

#include <string>

#include "base/status.h"
#include "base/unique_fd.h"

namespace torpor::rpc {

// A spelling of a socket path that fits sockaddr_un; valid while `directory` is open.
struct ShortPath {
  UniqueFd directory;  // not valid when the path was short enough
  std::string path;
};

// NOT_FOUND when the directory of a long path is missing; INVALID_ARGUMENT when the name itself is
// too long.
StatusOr<ShortPath> ShortenSocketPath(const std::string& path);

}  // namespace torpor::rpc
