#include "runtime/gvisor/staged.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/unique_fd.h"

namespace torpor::gvisor {

Staged DecideStaged(bool preserve, uint64_t links, int64_t bytes) {
  if (preserve || bytes <= kBigImageBytes) return Staged::kKeep;
  return links == 1 ? Staged::kTruncate : Staged::kUnlink;
}

void RemoveStaged(const std::string& path, const struct stat& pin, Staged staged) {
  if (staged == Staged::kKeep) return;
  const bool truncate = staged == Staged::kTruncate;
  UniqueFd fd(open(path.c_str(), (truncate ? O_WRONLY : O_PATH) | O_CLOEXEC | O_NOFOLLOW));
  struct stat st;
  if (!fd.valid() || fstat(fd.get(), &st) != 0) return;
  if (st.st_dev != pin.st_dev || st.st_ino != pin.st_ino) return;
  // A link made since the decision keeps its content.
  if (truncate && st.st_nlink == 1 && ftruncate(fd.get(), 0) != 0) {
    LogWarning("staged file not truncated", {{"path", path}, {"error", strerror(errno)}});
  }
  if (unlink(path.c_str()) != 0) {
    LogWarning("staged file not removed", {{"path", path}, {"error", strerror(errno)}});
  }
}

}  // namespace torpor::gvisor
