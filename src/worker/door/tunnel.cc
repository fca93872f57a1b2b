#include "worker/door/tunnel.h"

#include <errno.h>
#include <sys/socket.h>
#include <unistd.h>

namespace torpor::worker {
namespace {

constexpr int kReadsPerPump = 8;

}  // namespace

Tunnel::Result Tunnel::Flush() {
  while (!pending_.empty()) {
    ssize_t written = send(to_, pending_.data(), pending_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0 && errno == EINTR) continue;
    if (written < 0 && errno == EAGAIN) {
      writable_ = false;
      return Result::kBlocked;
    }
    if (written < 0) return Result::kBroken;
    pending_.erase(0, static_cast<size_t>(written));
  }
  if (!ended_) return Result::kAgain;
  shutdown(to_, SHUT_WR);
  finished_ = true;
  return Result::kFinished;
}

Tunnel::Result Tunnel::Pump(char* buffer, size_t buffer_size, size_t* moved) {
  if (finished_) return Result::kFinished;
  for (int reads = 0; reads < kReadsPerPump; ++reads) {
    if (!pending_.empty() || ended_) {
      if (!writable_) return Result::kBlocked;
      Result result = Flush();
      if (result != Result::kAgain) return result;
    }
    if (!readable_) return Result::kBlocked;
    ssize_t size = recv(from_, buffer, buffer_size, MSG_DONTWAIT);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) {
      readable_ = false;
      return Result::kBlocked;
    }
    if (size < 0) return Result::kBroken;
    if (size == 0) {
      ended_ = true;
      continue;
    }
    *moved += static_cast<size_t>(size);
    // A short read has emptied the socket: the next bytes are a new edge.
    if (static_cast<size_t>(size) < buffer_size && !hung_up_) readable_ = false;
    ssize_t written = send(to_, buffer, static_cast<size_t>(size), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (written < 0 && errno != EAGAIN && errno != EINTR) return Result::kBroken;
    if (written < 0) written = 0;
    if (written < size) pending_.assign(buffer + written, static_cast<size_t>(size - written));
  }
  return Result::kAgain;
}

}  // namespace torpor::worker
