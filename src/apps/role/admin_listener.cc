#include "apps/role/admin_listener.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <fmt/format.h>

#include "base/time.h"
#include "router/h1/head.h"
#include "rpc/unix_path.h"

namespace torpor {
namespace {

constexpr size_t kHeadMax = 16 << 10;
constexpr Duration kPatience = std::chrono::seconds(2);
constexpr int kBacklog = 16;

Status BadAddress(const std::string& listen) {
  return Error(Code::kInvalidArgument, "FIELD_INVALID",
               fmt::format("--metrics-listen {}: must be unix:PATH, ADDRESS:PORT or off", listen));
}

// Waits for `events` on `fd`, at most until `deadline`.
bool Await(int fd, short events, MonotonicTime deadline) {
  while (true) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::Real()->Now());
    pollfd p{fd, events, 0};
    int n = poll(&p, 1, static_cast<int>(std::max<int64_t>(left.count(), 0)));
    if (n > 0) return true;
    if (n == 0 || errno != EINTR) return false;
  }
}

}  // namespace

StatusOr<std::unique_ptr<AdminListener>> AdminListener::Start(const std::string& listen,
                                                              router::AdminPages pages) {
  constexpr std::string_view kUnix = "unix:";
  std::unique_ptr<AdminListener> out(new AdminListener(std::move(pages)));
  RETURN_IF_ERROR(listen.rfind(kUnix, 0) == 0 ? out->ListenUnix(listen.substr(kUnix.size()))
                                              : out->ListenTcp(listen));
  if (::listen(out->listener_.get(), kBacklog) != 0) return ErrnoStatus(errno, "listen " + listen);
  out->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
  if (!out->stop_.valid()) return ErrnoStatus(errno, "eventfd");
  out->thread_ = std::thread([listener = out.get()] { listener->Serve(); });
  return out;
}

AdminListener::~AdminListener() {
  if (thread_.joinable()) {
    eventfd_write(stop_.get(), 1);
    thread_.join();
  }
  if (!path_.empty()) unlink(path_.c_str());
}

Status AdminListener::ListenUnix(const std::string& path) {
  if (path.empty()) return BadAddress("unix:");
  ASSIGN_OR_RETURN(rpc::ShortPath name, rpc::ShortenSocketPath(path));
  listener_ = UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid()) return ErrnoStatus(errno, "socket");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.path.copy(address.sun_path, sizeof address.sun_path - 1);
  unlink(name.path.c_str());
  if (bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return ErrnoStatus(errno, "bind " + path);
  }
  path_ = path;
  address_ = "unix:" + path;
  // Nobody can connect before listen.
  if (chmod(name.path.c_str(), 0600) != 0) return ErrnoStatus(errno, "chmod " + path);
  return OkStatus();
}

Status AdminListener::ListenTcp(const std::string& listen) {
  const size_t colon = listen.rfind(':');
  if (colon == std::string::npos || colon == 0) return BadAddress(listen);
  std::string host = listen.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), listen.substr(colon + 1).c_str(), &hints, &found) != 0) {
    return BadAddress(listen);
  }
  std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> free_found(found, freeaddrinfo);
  listener_ = UniqueFd(socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid()) return ErrnoStatus(errno, "socket");
  const int on = 1;
  setsockopt(listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(listener_.get(), found->ai_addr, found->ai_addrlen) != 0) {
    return ErrnoStatus(errno, "listen on " + listen);
  }
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&bound), &size);
  char port[8] = {};
  getnameinfo(reinterpret_cast<sockaddr*>(&bound), size, nullptr, 0, port, sizeof port,
              NI_NUMERICSERV);
  address_ = listen.substr(0, colon + 1) + port;
  return OkStatus();
}

void AdminListener::Serve() {
  while (true) {
    pollfd wait[2] = {{listener_.get(), POLLIN, 0}, {stop_.get(), POLLIN, 0}};
    if (poll(wait, 2, -1) < 0 && errno != EINTR) return;
    if (wait[1].revents != 0) return;
    UniqueFd connection(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (connection.valid()) {
      Answer(connection.get());
    } else if (errno == EMFILE || errno == ENFILE) {
      // The connection stays in the queue; a busy loop would not free descriptors.
      (void)Await(stop_.get(), POLLIN, Clock::Real()->Now() + std::chrono::milliseconds(100));
    }
  }
}

void AdminListener::Answer(int fd) {
  const MonotonicTime deadline = Clock::Real()->Now() + kPatience;
  std::string head;
  while (true) {
    char buffer[4096];
    if (!Await(fd, POLLIN, deadline)) return;
    ssize_t n = recv(fd, buffer, sizeof buffer, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n <= 0 || head.size() + static_cast<size_t>(n) > kHeadMax) return;
    head.append(buffer, static_cast<size_t>(n));
    router::HeadScanner scanner;
    const auto state = scanner.Scan(head);
    if (state == router::HeadScanner::State::kBad) return;
    if (state == router::HeadScanner::State::kMore) continue;
    head.resize(scanner.size());
    break;
  }
  std::string answer = router::AdminAnswer(head, pages_);
  std::string_view left = answer;
  while (!left.empty() && Await(fd, POLLOUT, deadline)) {
    ssize_t n = send(fd, left.data(), left.size(), MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (n < 0) return;
    left.remove_prefix(static_cast<size_t>(n));
  }
  shutdown(fd, SHUT_WR);
}

}  // namespace torpor
