#include "api/auth.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>

#include <fmt/format.h>

#include "base/unique_fd.h"
#include "base/uuid.h"
#include "model/reasons.h"

namespace torpor::api {
namespace {

bool SameToken(std::string_view a, std::string_view b) {
  unsigned char difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i] ^ b[b.empty() ? 0 : i % b.size()]);
  }
  return difference == 0;
}

bool HasBearerScheme(std::string_view header) {
  constexpr std::string_view kScheme = "bearer ";
  return header.size() > kScheme.size() &&
         std::equal(kScheme.begin(), kScheme.end(), header.begin(),
                    [](char want, char got) { return want == tolower(got); });
}

Status Unusable(const std::string& path, std::string_view why) {
  return Error(Code::kFailedPrecondition, "INTERNAL",
               fmt::format("{} {}; correct it, or remove it to get a new one", path, why));
}

StatusOr<std::string> ReadToken(int fd, const std::string& path) {
  struct stat st;
  if (fstat(fd, &st) != 0) return ErrnoStatus(errno, "stat " + path);
  if ((st.st_mode & 077) != 0) return Unusable(path, "can be read by other users (chmod 600)");
  char buffer[1024];
  const ssize_t size = read(fd, buffer, sizeof(buffer));
  if (size < 0) return ErrnoStatus(errno, "read " + path);
  std::string token(buffer, static_cast<size_t>(size));
  while (!token.empty() && isspace(static_cast<unsigned char>(token.back()))) token.pop_back();
  if (token.size() < 16 || token.size() > 512 ||
      !std::all_of(token.begin(), token.end(), [](char c) { return c > ' ' && c <= '~'; })) {
    return Unusable(path, "holds no token (16 to 512 characters without spaces)");
  }
  return token;
}

// Written under another name first: whoever sees the file sees all of it. Another process may win.
Status MakeToken(const std::string& path) {
  const std::string temporary = fmt::format("{}.{}~", path, getpid());
  unlink(temporary.c_str());
  UniqueFd fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  if (!fd.valid()) return ErrnoStatus(errno, "create " + temporary);
  const std::string line = RandomHex(32) + "\n";
  Status status;
  if (write(fd.get(), line.data(), line.size()) != static_cast<ssize_t>(line.size()) ||
      fsync(fd.get()) != 0 || (link(temporary.c_str(), path.c_str()) != 0 && errno != EEXIST)) {
    status = ErrnoStatus(errno, "write " + path);
  }
  unlink(temporary.c_str());
  return status;
}

}  // namespace

Status TokenAuthenticator::Check(std::optional<std::string_view> authorization) const {
  if (authorization && HasBearerScheme(*authorization) &&
      SameToken(authorization->substr(7), token_)) {
    return OkStatus();
  }
  return Fail(reasons::kUnauthenticated,
              fmt::format("{}; send the header 'Authorization: Bearer <token>' with the token in "
                          "{}, or use the unix socket",
                          authorization ? "the token is wrong" : "a token is needed", token_file_));
}

StatusOr<std::string> LoadOrMakeToken(const std::string& path) {
  for (int attempt = 0; attempt < 2; ++attempt) {
    UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (fd.valid()) return ReadToken(fd.get(), path);
    if (errno != ENOENT) return ErrnoStatus(errno, "open " + path);
    RETURN_IF_ERROR(MakeToken(path));
  }
  return Fail(reasons::kInternal, path + " vanished while it was made; start again");
}

}  // namespace torpor::api
