#include "worker/probe/http_probe.h"

#include <errno.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "model/reasons.h"

namespace torpor::worker {
namespace {

using std::chrono::milliseconds;

constexpr Duration kFirstPause = milliseconds(1);
constexpr Duration kPauseMax = milliseconds(20);
// A SYN that a starting network stack lost is sent again by the kernel only after a second; a new
// connection is faster.
constexpr Duration kFirstConnectTimeout = milliseconds(10);
constexpr Duration kConnectTimeoutMax = milliseconds(200);
constexpr Duration kAnswerTimeout = std::chrono::seconds(5);
// How long the rest of an answer is read, so that the server does not meet a reset.
constexpr Duration kRestTimeout = milliseconds(20);
constexpr size_t kAnswerBytesMax = 64 << 10;

std::vector<pollfd> WakePolls(const std::vector<int>& wake_fds) {
  std::vector<pollfd> fds;
  for (int fd : wake_fds) fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
  return fds;
}

class Attempt {
 public:
  Attempt(UniqueFd fd, const std::vector<int>& wake_fds, Clock* clock)
      : fd_(std::move(fd)), clock_(clock), fds_(WakePolls(wake_fds)) {
    fds_.push_back({.fd = fd_.get(), .events = 0, .revents = 0});
  }

  // Empty = answered 200.
  std::string Run(const HttpProbe& probe, MonotonicTime connected_by, MonotonicTime answered_by) {
    if (!Wait(POLLOUT, connected_by)) return "connect timed out";
    int error = 0;
    socklen_t size = sizeof(error);
    getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &size);
    if (error != 0) return fmt::format("connect: {}", strerror(error));
    std::string request = fmt::format(
        "GET {} HTTP/1.1\r\nHost: localhost\r\nUser-Agent: torpor-probe\r\nConnection: "
        "close\r\n\r\n",
        probe.path);
    // The buffer of a new connection takes a request of this size whole.
    if (send(fd_.get(), request.data(), request.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(request.size())) {
      return fmt::format("send: {}", strerror(errno));
    }
    std::string answer;
    while (answer.find("\r\n") == std::string::npos) {
      if (!Wait(POLLIN, answered_by)) return "no answer yet";
      std::string problem = ReadMore(&answer);
      if (!problem.empty()) return problem;
    }
    if (answer.compare(0, 7, "HTTP/1.") != 0 || answer.size() < 12) return "not an HTTP answer";
    std::string code = answer.substr(9, 3);
    if (code != "200") return "status " + code;
    MonotonicTime rest_by = std::min(answered_by, clock_->Now() + kRestTimeout);
    while (answer.size() < kAnswerBytesMax && Wait(POLLIN, rest_by) && ReadMore(&answer).empty()) {
    }
    return "";
  }

 private:
  // False when the time is over or the caller was woken.
  bool Wait(short events, MonotonicTime until) {
    fds_.back().events = events;
    while (true) {
      Duration left = std::max<Duration>(until - clock_->Now(), Duration::zero());
      timespec timeout = {.tv_sec = left.count() / 1000000000,
                          .tv_nsec = left.count() % 1000000000};
      int ready = ppoll(fds_.data(), fds_.size(), &timeout, nullptr);
      if (ready < 0 && errno == EINTR) continue;
      return ready == 1 && fds_.back().revents != 0;
    }
  }

  // A problem, or nothing; the end of the stream is a problem.
  std::string ReadMore(std::string* answer) {
    char buffer[16384];
    ssize_t size = recv(fd_.get(), buffer, sizeof(buffer), 0);
    if (size < 0 && (errno == EINTR || errno == EAGAIN)) return "";
    if (size < 0) return fmt::format("receive: {}", strerror(errno));
    if (size == 0) return "closed without an answer";
    answer->append(buffer, static_cast<size_t>(size));
    return answer->size() > kAnswerBytesMax ? "answer without an end of line" : "";
  }

  const UniqueFd fd_;
  Clock* const clock_;
  std::vector<pollfd> fds_;  // the last one is the connection
};

// True when the caller was woken.
bool Pause(Duration time, const std::vector<int>& wake_fds) {
  std::vector<pollfd> fds = WakePolls(wake_fds);
  timespec timeout = {.tv_sec = 0, .tv_nsec = time.count()};
  return ppoll(fds.data(), fds.size(), &timeout, nullptr) > 0;
}

}  // namespace

Status WaitUntilReady(const HttpProbe& probe, const DialFunction& dial, MonotonicTime deadline,
                      const std::vector<int>& wake_fds, Clock* clock, ProbeReport* report) {
  Duration pause = kFirstPause;
  Duration connect_timeout = kFirstConnectTimeout;
  while (true) {
    ++report->attempts;
    std::string problem;
    StatusOr<UniqueFd> fd = dial(probe.port);
    if (fd.ok()) {
      MonotonicTime now = clock->Now();
      problem = Attempt(std::move(fd).value(), wake_fds, clock)
                    .Run(probe, std::min(deadline, now + connect_timeout),
                         std::min(deadline, now + kAnswerTimeout));
      if (problem.empty()) return OkStatus();
    } else {
      problem = std::string(fd.status().message());
    }
    // An attempt that the deadline cut short tells less than the one before it.
    if (clock->Now() < deadline || report->last_problem.empty()) report->last_problem = problem;
    if (clock->Now() + pause >= deadline) {
      return Fail(
          reasons::kWorkloadNotReady,
          fmt::format("GET {} on port {} was not answered with 200 in {} attempts; last: {}",
                      probe.path, probe.port, report->attempts, report->last_problem));
    }
    if (Pause(pause, wake_fds)) return Fail(reasons::kCancelled, "probe ended early");
    pause = std::min(pause * 2, kPauseMax);
    connect_timeout = std::min(connect_timeout * 2, kConnectTimeoutMax);
  }
}

}  // namespace torpor::worker
