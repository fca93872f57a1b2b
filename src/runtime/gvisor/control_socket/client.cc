#include "runtime/gvisor/control_socket/client.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "model/reasons.h"
#include "runtime/gvisor/control_socket/answer.h"

namespace torpor::gvisor {
namespace {

constexpr size_t kFdsMax = 8;
constexpr size_t kErrorBytesMax = 2048;

// Waits until `fd` can be read or written.
Status Await(int fd, short events, MonotonicTime deadline) {
  for (;;) {
    auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      return Fail(reasons::kDeadlineExceeded, "the sandbox does not answer on its control socket");
    }
    pollfd polled{fd, events, 0};
    int ready = poll(&polled, 1, static_cast<int>(std::min<int64_t>(left.count(), 1 << 20)));
    if (ready > 0) return OkStatus();
    if (ready < 0 && errno != EINTR) return ErrnoStatus(errno, "poll");
  }
}

StatusOr<UniqueFd> ConnectTo(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return ErrnoStatus(ENAMETOOLONG, path);
  memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return ErrnoStatus(errno, "socket");
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    return ErrnoStatus(errno, "connect to " + path);
  }
  return fd;
}

void PutFds(const std::vector<int>& fds, char* buffer, msghdr* message) {
  message->msg_control = buffer;
  message->msg_controllen = CMSG_SPACE(sizeof(int) * fds.size());
  cmsghdr* header = CMSG_FIRSTHDR(message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof(int) * fds.size());
  memcpy(CMSG_DATA(header), fds.data(), sizeof(int) * fds.size());
}

CallResult Judge(const std::string& method, const std::string& text) {
  Answer answer;
  if (!ParseAnswer(text, &answer)) {
    return {CallEnd::kUnknown,
            Fail(reasons::kRuntimeFailed, method + ": the answer of the sandbox is not readable"),
            ""};
  }
  if (answer.success) return {CallEnd::kDone, OkStatus(), std::move(answer.result)};
  return {CallEnd::kRefused,
          Fail(reasons::kRuntimeFailed,
               fmt::format("{}: {}", method, answer.error.substr(0, kErrorBytesMax))),
          ""};
}

}  // namespace

StatusOr<ControlSocket> ControlSocket::Connect(const std::string& root, const std::string& id) {
  const std::string name = fmt::format("runsc-{}.sock", id);
  UniqueFd directory(open(root.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory.valid()) return ErrnoStatus(errno, "open " + root);
  // Reached through /proc, however long the path is. When it was too long for runsc itself, the
  // socket lies in the first of these directories.
  auto fd = ConnectTo(fmt::format("/proc/self/fd/{}/{}", directory.get(), name));
  for (const char* other : {"/var/run/", "/run/", "/tmp/"}) {
    if (fd.ok() || fd.status().code() != Code::kNotFound) break;
    auto elsewhere = ConnectTo(other + name);
    if (elsewhere.ok()) fd = std::move(elsewhere);
  }
  if (!fd.ok()) return fd.status();
  return ControlSocket(std::move(*fd));
}

Status ControlSocket::Send(const ControlCall& call, MonotonicTime deadline, bool* any_sent) {
  const std::string text = fmt::format(R"({{"method":"{}","arg":{}}})", call.method, call.arg);
  CHECK(call.fds.size() <= kFdsMax);
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int) * kFdsMax)] = {};
  size_t sent = 0;
  while (sent < text.size()) {
    iovec part{const_cast<char*>(text.data()) + sent, text.size() - sent};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (sent == 0 && !call.fds.empty()) PutFds(call.fds, control, &message);
    ssize_t n = sendmsg(fd_.get(), &message, MSG_NOSIGNAL);
    if (n > 0) {
      sent += static_cast<size_t>(n);
      *any_sent = true;
    } else if (n < 0 && errno == EAGAIN) {
      RETURN_IF_ERROR(Await(fd_.get(), POLLOUT, deadline));
    } else if (n < 0 && errno != EINTR) {
      return ErrnoStatus(errno, "send to the sandbox");
    }
  }
  return OkStatus();
}

CallResult ControlSocket::Call(const ControlCall& call, MonotonicTime deadline) && {
  bool any_sent = false;
  Status sent = Send(call, deadline, &any_sent);
  if (!sent.ok()) {
    fd_.Reset();
    return {any_sent ? CallEnd::kUnknown : CallEnd::kNotSent, Annotate(sent, call.method), ""};
  }
  AnswerReader reader;
  Status failed;
  char buffer[8192];
  while (failed.ok() && reader.state() == AnswerReader::State::kMore) {
    failed = Await(fd_.get(), POLLIN, deadline);
    if (!failed.ok()) break;
    ssize_t n = recv(fd_.get(), buffer, sizeof buffer, 0);
    if (n > 0) {
      reader.Append({buffer, static_cast<size_t>(n)});
    } else if (n == 0) {
      failed = Fail(reasons::kRuntimeFailed, "the sandbox closed its control socket");
    } else if (errno != EINTR && errno != EAGAIN) {
      failed = ErrnoStatus(errno, "read from the sandbox");
    }
  }
  fd_.Reset();
  if (!failed.ok()) return {CallEnd::kUnknown, Annotate(failed, call.method), ""};
  return Judge(call.method, reader.state() == AnswerReader::State::kComplete ? reader.text() : "");
}

CallResult CallSandbox(const std::string& root, const std::string& id, const ControlCall& call,
                       MonotonicTime deadline) {
  auto socket = ControlSocket::Connect(root, id);
  if (!socket.ok()) return {CallEnd::kNotSent, Annotate(socket.status(), call.method), ""};
  return std::move(*socket).Call(call, deadline);
}

}  // namespace torpor::gvisor
