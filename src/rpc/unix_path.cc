#include "rpc/unix_path.h"

#include <fcntl.h>
#include <sys/un.h>

#include <cerrno>

#include <fmt/format.h>

namespace torpor::rpc {

StatusOr<ShortPath> ShortenSocketPath(const std::string& path) {
  constexpr size_t kMax = sizeof(sockaddr_un{}.sun_path) - 1;
  if (path.empty() || path.find('\0') != std::string::npos) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID", "a socket path must not be empty");
  }
  if (path.size() <= kMax) return ShortPath{UniqueFd(), path};
  size_t slash = path.rfind('/');
  std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  std::string name = slash == std::string::npos ? path : path.substr(slash + 1);
  UniqueFd fd(open(directory.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "open " + directory);
  std::string shorter = fmt::format("/proc/self/fd/{}/{}", fd.get(), name);
  if (name.empty() || shorter.size() > kMax) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID",
                 fmt::format("the name of the socket {} is too long; choose a shorter one", path));
  }
  return ShortPath{std::move(fd), std::move(shorter)};
}

}  // namespace torpor::rpc
