#include "worker/probe/settle.h"

#include <errno.h>
#include <poll.h>

#include <algorithm>

namespace torpor::worker {
namespace {

constexpr int kPortOfNobody = 0;
constexpr int kRounds = 2;

// True when `fd`, which is connecting, got an answer of any kind.
bool WaitForAnswer(int fd, MonotonicTime deadline, const std::vector<int>& wake_fds, Clock* clock) {
  std::vector<pollfd> fds = {{.fd = fd, .events = POLLOUT, .revents = 0}};
  for (int wake : wake_fds) fds.push_back({.fd = wake, .events = POLLIN, .revents = 0});
  while (true) {
    Duration left = std::max<Duration>(deadline - clock->Now(), Duration::zero());
    timespec timeout = {.tv_sec = left.count() / 1000000000, .tv_nsec = left.count() % 1000000000};
    int ready = ppoll(fds.data(), fds.size(), &timeout, nullptr);
    if (ready < 0 && errno == EINTR) continue;
    return ready > 0 && fds[0].revents != 0;
  }
}

}  // namespace

bool WaitUntilSettled(const DialFunction& dial, MonotonicTime deadline,
                      const std::vector<int>& wake_fds, Clock* clock) {
  for (int round = 0; round < kRounds; ++round) {
    StatusOr<UniqueFd> fd = dial(kPortOfNobody);
    if (!fd.ok() || !WaitForAnswer(fd->get(), deadline, wake_fds, clock)) return false;
  }
  return true;
}

}  // namespace torpor::worker
