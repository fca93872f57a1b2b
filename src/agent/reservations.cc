#include "agent/reservations.h"

#include <fmt/format.h>

#include "base/quantity.h"
#include "model/reasons.h"

namespace torpor::agent {

DiskNeed CaptureNeed(int64_t resident_bytes, int64_t volume_bytes) {
  constexpr int64_t kOwnStateBytes = 16 << 20;
  constexpr int64_t kInodes = 64;
  const int64_t content = resident_bytes + volume_bytes;
  return {content + content / 20 + kOwnStateBytes, kInodes};
}

Status CheckRoom(const os::DiskSpace& space, const DiskNeed& reserved, const DiskNeed& need,
                 const std::string& path) {
  int64_t bytes = space.free_bytes - reserved.bytes;
  int64_t inodes = space.free_inodes - reserved.inodes;
  if (bytes >= need.bytes && inodes >= need.inodes) return OkStatus();
  return Fail(
      reasons::kDiskFull,
      fmt::format("the capture may need {} and {} files in {}, and {} and {} are free; free "
                  "space there or add a disk",
                  FormatBytes(need.bytes), need.inodes, path,
                  FormatBytes(std::max<int64_t>(bytes, 0)), std::max<int64_t>(inodes, 0)),
      {{"path", path}, {"need_bytes", fmt::to_string(need.bytes)}});
}

StatusOr<Reservations::Hold> Reservations::Reserve(const os::DirFd& dir, const std::string& path,
                                                   DiskNeed need) {
  ASSIGN_OR_RETURN(os::DiskSpace space, dir.Space());
  MutexLock lock(&mu_);
  RETURN_IF_ERROR(CheckRoom(space, reserved_, need, path));
  reserved_.bytes += need.bytes;
  reserved_.inodes += need.inodes;
  return Hold(this, need);
}

void Reservations::Release(const DiskNeed& need) {
  MutexLock lock(&mu_);
  reserved_.bytes -= need.bytes;
  reserved_.inodes -= need.inodes;
}

}  // namespace torpor::agent
