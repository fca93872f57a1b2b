#pragma once
// The door's end of one router's control connection: lines that wait to be written.
//
// Shared between the door's loop that owns the socket and whoever has something to say.
// Thread-safe.

#include <cstddef>
#include <functional>
#include <string>

#include "base/sync.h"

namespace torpor::worker {

class ControlChannel {
 public:
  static constexpr size_t kUnsentBytesMax = 1 << 20;

  // `wake` makes the loop call TakeUnsent soon.
  ControlChannel(std::string router, std::function<void()> wake)
      : router(std::move(router)), wake_(std::move(wake)) {}

  // False when the connection ended, or ends now because the router does not read.
  bool Send(const std::string& line) EXCLUDES(mu_) {
    bool sent = true;
    {
      MutexLock lock(&mu_);
      if (closed_) return false;
      if (unsent_.size() + line.size() > kUnsentBytesMax) {
        closed_ = true;
        sent = false;
      } else {
        unsent_ += line;
      }
    }
    wake_();
    return sent;
  }
  // The loop notices and closes the socket.
  void Close() EXCLUDES(mu_) {
    {
      MutexLock lock(&mu_);
      closed_ = true;
    }
    wake_();
  }
  // False when it is closed.
  bool TakeUnsent(std::string* out) EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    out->append(unsent_);
    unsent_.clear();
    return !closed_;
  }
  // By the loop, when its socket is gone. `wake` is not called any more.
  void Ended() EXCLUDES(mu_) {
    MutexLock lock(&mu_);
    closed_ = true;
  }

  const std::string router;

 private:
  const std::function<void()> wake_;
  Mutex mu_;
  bool closed_ GUARDED_BY(mu_) = false;
  std::string unsent_ GUARDED_BY(mu_);
};

}  // namespace torpor::worker
