#include "workloads/http/server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "workloads/base/flags.h"
#include "workloads/http/connection.h"

namespace torpor::workloads::http {
namespace {

constexpr uint64_t kWakeupId = 0;
constexpr int kAcceptsPerEvent = 64;
constexpr std::chrono::milliseconds kAcceptPause{100};

std::string AddressText(const sockaddr_in& address) {
  char text[INET_ADDRSTRLEN] = "";
  ::inet_ntop(AF_INET, &address.sin_addr, text, sizeof(text));
  return text;
}

}  // namespace

std::unique_ptr<BodySink> App::OnHead(const Request&, const Reply&) { return nullptr; }

Server::Server()
    : epoll_(::epoll_create1(EPOLL_CLOEXEC)), wakeup_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  if (!epoll_.ok() || !wakeup_.ok()) {
    std::perror("epoll or eventfd");
    std::abort();
  }
  Watch(wakeup_.get(), kWakeupId, EPOLLIN, true);
}

Server::~Server() = default;

std::string Server::Listen(const std::string& host, uint16_t port, App* app, std::string* bound) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  const std::string numeric = host.empty() ? "0.0.0.0" : host == "localhost" ? "127.0.0.1" : host;
  if (::inet_pton(AF_INET, numeric.c_str(), &address.sin_addr) != 1) {
    return "'" + host + "' is not an IPv4 address";
  }
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.ok()) return ErrnoText("socket");
  const int one = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &one, sizeof(one));
  socklen_t size = sizeof(address);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0) {
    return ErrnoText("bind " + numeric + ":" + std::to_string(port));
  }
  if (::listen(fd.get(), 1024) != 0) return ErrnoText("listen");
  ::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size);
  *bound = AddressText(address) + ":" + std::to_string(ntohs(address.sin_port));
  const uint64_t id = next_id_++;
  Watch(fd.get(), id, EPOLLIN, true);
  listeners_.emplace(id, Listener{std::move(fd), app});
  return "";
}

void Server::Run() {
  epoll_event events[64];
  while (!stopping_.load()) {
    const int timeout = RunTimers();
    dropped_.clear();
    const int count = ::epoll_wait(epoll_.get(), events, 64, timeout);
    // EINTR is what a restored sandbox sees; the loop simply goes round.
    if (count < 0 && errno != EINTR) {
      std::perror("epoll_wait");
      std::abort();
    }
    for (int i = 0; i < count; ++i) Dispatch(events[i].data.u64, events[i].events);
  }
}

void Server::Stop() {
  stopping_.store(true);
  const uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof(one));
}

void Server::Post(std::function<void()> task) {
  {
    const std::lock_guard lock(posted_mu_);
    posted_.push_back(std::move(task));
  }
  const uint64_t one = 1;
  (void)!::write(wakeup_.get(), &one, sizeof(one));
}

void Server::After(std::chrono::milliseconds delay, std::function<void()> task) {
  timers_.emplace(MonotonicNs() + delay.count() * 1'000'000, std::move(task));
}

void Server::Watch(int fd, uint64_t id, uint32_t events, bool add) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  ::epoll_ctl(epoll_.get(), add ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd, &event);
}

void Server::Dispatch(uint64_t id, uint32_t events) {
  if (id == kWakeupId) return RunPosted();
  if (const auto listener = listeners_.find(id); listener != listeners_.end()) {
    return Accept(listener->second);
  }
  if (const auto found = connections_.find(id); found != connections_.end()) {
    return found->second->OnEvents(events);
  }
  // It may have been dropped by an earlier event of the same round. Otherwise it is a ghost: in
  // gVisor a connection that was open when the sandbox was checkpointed stays in the ready list
  // after its close, whether or not it was removed with EPOLL_CTL_DEL, and is reported for ever.
  const bool dropped_now = std::any_of(dropped_.begin(), dropped_.end(),
                                       [id](const auto& dropped) { return dropped->id() == id; });
  if (!dropped_now) RenewEpoll();
}

// Starts over with a new epoll set, which is the only way to be rid of a ghost.
void Server::RenewEpoll() {
  UniqueFd renewed(::epoll_create1(EPOLL_CLOEXEC));
  if (!renewed.ok()) return;
  epoll_ = std::move(renewed);
  Watch(wakeup_.get(), kWakeupId, EPOLLIN, true);
  for (const auto& [id, listener] : listeners_) {
    Watch(listener.fd.get(), id, accepting_ ? uint32_t{EPOLLIN} : 0, true);
  }
  for (const auto& [id, connection] : connections_) {
    Watch(connection->fd(), id, connection->interest(), true);
  }
}

void Server::Accept(Listener& listener) {
  for (int i = 0; i < kAcceptsPerEvent; ++i) {
    const int fd = ::accept4(listener.fd.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0 && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS)) {
      // The listener stays readable, so without a pause the loop would spin until something closes.
      WatchListeners(false);
      After(kAcceptPause, [this] { WatchListeners(true); });
      return;
    }
    if (fd < 0) return;
    const int one = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    const uint64_t id = next_id_++;
    connections_.emplace(id, std::make_unique<Connection>(this, listener.app, id, UniqueFd(fd)));
    Watch(fd, id, EPOLLIN, true);
  }
}

void Server::WatchListeners(bool on) {
  accepting_ = on;
  for (auto& [id, listener] : listeners_)
    Watch(listener.fd.get(), id, on ? uint32_t{EPOLLIN} : 0, false);
}

void Server::RunPosted() {
  uint64_t count;
  (void)!::read(wakeup_.get(), &count, sizeof(count));
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(posted_mu_);
    tasks.swap(posted_);
  }
  for (auto& task : tasks) task();
}

int Server::RunTimers() {
  // A timer that sets the next one must not keep the sockets waiting, so `now` is taken once.
  const int64_t now = MonotonicNs();
  while (!timers_.empty()) {
    const int64_t left = timers_.begin()->first - now;
    if (left > 0) return static_cast<int>(std::min<int64_t>(left / 1'000'000 + 1, 60'000));
    const std::function<void()> task = std::move(timers_.begin()->second);
    timers_.erase(timers_.begin());
    task();
  }
  return -1;
}

void Server::Drop(uint64_t id) {
  const auto found = connections_.find(id);
  if (found == connections_.end()) return;
  dropped_.push_back(std::move(found->second));
  connections_.erase(found);
}

Connection* Reply::Find() const {
  if (server_ == nullptr) return nullptr;
  const auto found = server_->connections_.find(connection_);
  if (found == server_->connections_.end()) return nullptr;
  return found->second->Answering(serial_) ? found->second.get() : nullptr;
}

bool Reply::Open() const { return Find() != nullptr; }

void Reply::Send(Response response) const {
  if (Connection* connection = Find()) connection->Send(std::move(response));
}

void Reply::Begin(const Response& head, std::optional<uint64_t> length) const {
  if (Connection* connection = Find()) connection->Begin(head, length);
}

void Reply::Write(std::string_view data) const {
  if (Connection* connection = Find()) connection->Write(data);
}

void Reply::End() const {
  if (Connection* connection = Find()) connection->End();
}

void Reply::Upgrade(const Headers& headers, std::unique_ptr<Upgraded> upgraded) const {
  if (Connection* connection = Find()) connection->Upgrade(headers, std::move(upgraded));
}

std::string Reply::LocalAddress() const {
  Connection* connection = Find();
  sockaddr_in address{};
  socklen_t size = sizeof(address);
  if (connection == nullptr ||
      ::getsockname(connection->fd(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return "";
  }
  return AddressText(address);
}

bool SplitAddress(std::string_view address, std::string* host, uint16_t* port) {
  const size_t colon = address.rfind(':');
  if (colon == std::string_view::npos) return false;
  int64_t number = 0;
  if (!ParseInteger(address.substr(colon + 1), 0, 65535, &number)) return false;
  *host = address.substr(0, colon);
  *port = static_cast<uint16_t>(number);
  return true;
}

}  // namespace torpor::workloads::http
