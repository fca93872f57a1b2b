#pragma once
// Room on the disk promised to captures that are under way.

#include <cstdint>

#include "base/status.h"
#include "base/sync.h"
#include "os/fs/dir_fd.h"

namespace torpor::agent {

struct DiskNeed {
  int64_t bytes = 0;
  int64_t inodes = 0;
};

// What a capture may need at most: the resident memory (where it captures memory) and the content
// of volumes plus 5 %, and 16 MiB for the runtime's own state. Pure.
DiskNeed CaptureNeed(int64_t resident_bytes, int64_t volume_bytes);

// RESOURCE_EXHAUSTED DISK_FULL naming `path` and the need when it does not fit beside `reserved`.
// Pure.
Status CheckRoom(const os::DiskSpace& space, const DiskNeed& reserved, const DiskNeed& need,
                 const std::string& path);

// Thread-safe.
class Reservations {
 public:
  // Held while the capture runs; movable.
  class Hold {
   public:
    Hold() = default;
    Hold(Reservations* owner, DiskNeed need) : owner_(owner), need_(need) {}
    Hold(Hold&& other) noexcept
        : owner_(std::exchange(other.owner_, nullptr)), need_(other.need_) {}
    Hold& operator=(Hold&&) = delete;
    ~Hold() {
      if (owner_ != nullptr) owner_->Release(need_);
    }

   private:
    Reservations* owner_ = nullptr;
    DiskNeed need_;
  };

  StatusOr<Hold> Reserve(const os::DirFd& dir, const std::string& path, DiskNeed need)
      EXCLUDES(mu_);

 private:
  void Release(const DiskNeed& need) EXCLUDES(mu_);

  Mutex mu_;
  DiskNeed reserved_ GUARDED_BY(mu_);
};

}  // namespace torpor::agent
