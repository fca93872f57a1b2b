#include "worker/door/door_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

#include <fmt/format.h>

#include "base/log.h"
#include "model/door_line.h"

namespace torpor::worker {
namespace {

constexpr int kEventsMax = 64;
constexpr int kTickMs = 100;  // how exact the deadlines of heads and connects are
constexpr std::string_view kSwitching =
    "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: torpor-control/1\r\n\r\n";
constexpr std::string_view kEstablished = "HTTP/1.1 200 Connection established\r\n\r\n";

std::string_view StatusText(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 409:
      return "Conflict";
    case 502:
      return "Bad Gateway";
    default:
      return "Service Unavailable";
  }
}

// Ends a TCP connection with a reset, so that the guest's endpoint is gone at once: a capture may
// follow.
void ResetTcp(int fd) {
  sockaddr none = {};
  none.sa_family = AF_UNSPEC;
  (void)connect(fd, &none, sizeof(none));
}

}  // namespace

Status DoorLoop::Start() {
  epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  wake_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  reserve_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!epoll_.valid() || !wake_.valid() || !reserve_.valid())
    return ErrnoStatus(errno, "door loop");
  epoll_event event = {};
  event.events = EPOLLIN;
  event.data.ptr = &wake_;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) != 0) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  event.events = EPOLLIN | EPOLLEXCLUSIVE;
  event.data.ptr = this;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, door_->listener_.get(), &event) != 0) {
    return ErrnoStatus(errno, "epoll_ctl");
  }
  thread_ = std::thread([this] { Run(); });
  return OkStatus();
}

void DoorLoop::Stop() {
  if (!thread_.joinable()) return;
  {
    MutexLock lock(&mu_);
    stopping_ = true;
  }
  eventfd_write(wake_.get(), 1);
  thread_.join();
}

void DoorLoop::CloseRoute(std::shared_ptr<Route> route) {
  {
    MutexLock lock(&mu_);
    to_close_.push_back(std::move(route));
  }
  eventfd_write(wake_.get(), 1);
}

void DoorLoop::Run() {
  std::array<epoll_event, kEventsMax> events;
  while (true) {
    int timeout = !again_.empty() ? 0 : timed_ > 0 ? kTickMs : -1;
    int count = epoll_wait(epoll_.get(), events.data(), kEventsMax, timeout);
    for (int i = 0; i < count; ++i) HandleEvent(events[static_cast<size_t>(i)]);
    for (Connection* c : std::exchange(again_, {})) {
      c->again = false;
      if (c->state == State::kOpen) PumpBoth(*c);
    }
    if (timed_ > 0) CloseOverdue();
    dead_.clear();
    MutexLock lock(&mu_);
    if (stopping_) break;
  }
  while (!connections_.empty()) Close(*connections_.front());
  dead_.clear();
}

void DoorLoop::HandleEvent(const epoll_event& event) {
  if (event.data.ptr == this) return Accept();
  if (event.data.ptr == &wake_) return HandleWakeUp();
  const auto* end = static_cast<const End*>(event.data.ptr);
  Connection& c = *end->connection;
  if (c.state == State::kClosed) return;  // by an earlier event of this batch
  if (end->is_guest) {
    HandleGuest(c, event.events);
  } else {
    HandleClient(c, event.events);
  }
}

void DoorLoop::HandleWakeUp() {
  eventfd_t ignored;
  eventfd_read(wake_.get(), &ignored);
  std::vector<std::shared_ptr<Route>> routes;
  {
    MutexLock lock(&mu_);
    routes.swap(to_close_);
  }
  for (size_t i = controls_.size(); i > 0; --i) FlushControl(*controls_[i - 1]);
  if (routes.empty()) return;
  for (auto it = connections_.begin(); it != connections_.end();) {
    Connection& c = **it++;  // Close takes it out of the list
    if (c.route != nullptr && std::find(routes.begin(), routes.end(), c.route) != routes.end()) {
      Close(c);
    }
  }
}

void DoorLoop::CloseOverdue() {
  MonotonicTime now = clock_->Now();
  for (auto it = connections_.begin(); it != connections_.end();) {
    Connection& c = **it++;
    if (c.state == State::kHead && now >= c.deadline) Close(c);
    if (c.state == State::kConnecting && now >= c.deadline) {
      Answer(c, 502, "CONNECT_REFUSED", c.route->generation);
    }
  }
}

void DoorLoop::Accept() {
  UniqueFd fd(accept4(door_->listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!fd.valid() && (errno == EMFILE || errno == ENFILE)) {
    // Without this the pending connection would wake the loop for ever.
    reserve_.Reset();
    fd = UniqueFd(accept4(door_->listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    fd.Reset();
    reserve_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
    LogWarning("door: out of file descriptors, connection closed");
    return;
  }
  if (!fd.valid() || !door_->MayConnect(fd.get())) return;
  if (door_->connections_.load() >= door_->options_.connections_max) return;
  auto owned = std::make_unique<Connection>();
  Connection& c = *owned;
  c.client = std::move(fd);
  c.client_end = {.connection = &c, .is_guest = false};
  c.guest_end = {.connection = &c, .is_guest = true};
  c.deadline = clock_->Now() + door_->options_.head_timeout;
  c.self = connections_.insert(connections_.end(), std::move(owned));
  ++timed_;
  ++door_->connections_;
  if (!Watch(c.client.get(), &c.client_end)) Close(c);
}

bool DoorLoop::Watch(int fd, End* end) {
  epoll_event event = {};
  event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET;
  event.data.ptr = end;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void DoorLoop::HandleClient(Connection& c, uint32_t events) {
  // Somebody who left is not waited for, whatever the guest still wants to say.
  bool left = (events & (EPOLLHUP | EPOLLERR)) != 0;
  switch (c.state) {
    case State::kHead:
      if ((events & EPOLLIN) != 0) return ReadHead(c);
      if (left) Close(c);
      return;
    case State::kConnecting:
      // Bytes before the answer, or the end: in both cases this is no client of ours any more.
      if (left || (events & (EPOLLIN | EPOLLRDHUP)) != 0) Close(c);
      return;
    case State::kOpen:
      if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP)) != 0) {
        c.to_guest.SetReadable((events & (EPOLLRDHUP | EPOLLHUP)) != 0);
      }
      if ((events & EPOLLOUT) != 0) c.to_client.SetWritable();
      PumpBoth(c);
      if (left && c.state == State::kOpen) Close(c);
      return;
    case State::kControl:
      if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) ReadControl(c);
      if (c.state == State::kControl && (events & EPOLLOUT) != 0) FlushControl(c);
      return;
    case State::kClosed:
      return;
  }
}

void DoorLoop::HandleGuest(Connection& c, uint32_t events) {
  if (c.state == State::kConnecting) {
    if ((events & (EPOLLOUT | EPOLLERR | EPOLLHUP)) != 0) FinishConnect(c);
    return;
  }
  if (c.state != State::kOpen) return;
  if ((events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0) {
    c.to_client.SetReadable((events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR)) != 0);
  }
  if ((events & EPOLLOUT) != 0) c.to_guest.SetWritable();
  PumpBoth(c);
}

void DoorLoop::ReadHead(Connection& c) {
  while (true) {
    ssize_t size = recv(c.client.get(), buffer_.data(), buffer_.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) return Close(c);
    if (c.head.size() + static_cast<size_t>(size) > kConnectHeadBytesMax) {
      return Answer(c, 400, "BAD_REQUEST", 0);
    }
    c.head.append(buffer_.data(), static_cast<size_t>(size));
    ConnectHead head = ParseConnectHead(c.head);
    if (head.state == HeadState::kBad) return Answer(c, 400, "BAD_REQUEST", 0);
    if (head.state != HeadState::kComplete) continue;
    c.router = std::move(head.router);
    if (head.control) return StartControl(c);
    return Connect(c, head.target);
  }
}

void DoorLoop::Connect(Connection& c, const ConnectTarget& target) {
  std::shared_ptr<Route> route = door_->Find(target.uid);
  if (route == nullptr) return Answer(c, 404, "NOT_HERE", 0);
  int64_t generation = route->generation;
  if (generation != target.generation) return Answer(c, 409, "STALE_GENERATION", generation);
  if (std::find(route->ports.begin(), route->ports.end(), target.port) == route->ports.end()) {
    return Answer(c, 403, "NO_SUCH_PORT", generation);
  }
  switch (route->Admit(c.router)) {
    case Admission::kDraining:
      return Answer(c, 503, "DRAINING", generation);
    case Admission::kGone:
      return Answer(c, 404, "NOT_HERE", 0);
    case Admission::kTooMany:
      return Answer(c, 503, "TOO_MANY_CONNECTIONS", generation);
    case Admission::kAdmitted:
      break;
  }
  c.route = route;
  c.state = State::kConnecting;
  c.deadline = clock_->Now() + door_->options_.connect_timeout;
  StatusOr<UniqueFd> guest = route->dial(target.port);
  if (!guest.ok()) {
    LogWarning("door: dial failed", {{"actor", route->uid}, {"error", guest.status().ToString()}});
    return Answer(c, 502, "CONNECT_REFUSED", generation);
  }
  c.guest = std::move(guest).value();
  int one = 1;  // fails on a unix socket, which needs it not
  (void)setsockopt(c.guest.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  if (!Watch(c.guest.get(), &c.guest_end)) Answer(c, 502, "CONNECT_REFUSED", generation);
}

void DoorLoop::FinishConnect(Connection& c) {
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(c.guest.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return Answer(c, 502, "CONNECT_REFUSED", c.route->generation);
  c.state = State::kOpen;
  --timed_;
  c.flow = std::make_shared<Flow>(c.router);
  c.flow->last_bytes = clock_->Now().time_since_epoch().count();
  c.route->Connected(c.flow);
  c.to_guest = Tunnel(c.client.get(), c.guest.get());
  c.to_client = Tunnel(c.guest.get(), c.client.get());
  // An empty socket buffer takes these few bytes whole; else the client is gone.
  if (send(c.client.get(), kEstablished.data(), kEstablished.size(), MSG_NOSIGNAL) !=
      static_cast<ssize_t>(kEstablished.size())) {
    return Close(c);
  }
  PumpBoth(c);
}

void DoorLoop::PumpBoth(Connection& c) {
  size_t to_guest = 0;
  size_t to_client = 0;
  Tunnel::Result out = c.to_guest.Pump(buffer_.data(), buffer_.size(), &to_guest);
  Tunnel::Result in = c.to_client.Pump(buffer_.data(), buffer_.size(), &to_client);
  if (to_guest + to_client > 0) {
    c.flow->last_bytes.store(clock_->Now().time_since_epoch().count(), std::memory_order_relaxed);
    // The direction of the last byte tells whether the guest owes an answer.
    bool unanswered = to_client == 0;
    if (unanswered != c.flow->unanswered.load(std::memory_order_relaxed)) {
      c.route->SetUnanswered(c.flow.get(), unanswered);
    }
  }
  if (out == Tunnel::Result::kBroken || in == Tunnel::Result::kBroken ||
      (out == Tunnel::Result::kFinished && in == Tunnel::Result::kFinished)) {
    return Close(c);
  }
  if ((out == Tunnel::Result::kAgain || in == Tunnel::Result::kAgain) && !c.again) {
    c.again = true;
    again_.push_back(&c);
  }
}

void DoorLoop::StartControl(Connection& c) {
  auto channel =
      std::make_shared<ControlChannel>(c.router, [this] { eventfd_write(wake_.get(), 1); });
  if (!door_->AddControl(channel)) return Answer(c, 503, "TOO_MANY_CONNECTIONS", 0);
  c.control = std::move(channel);
  controls_.push_back(&c);
  c.state = State::kControl;
  --timed_;
  c.head.clear();
  c.control_out = kSwitching;
  FlushControl(c);
}

void DoorLoop::ReadControl(Connection& c) {
  while (true) {
    ssize_t size = recv(c.client.get(), buffer_.data(), buffer_.size(), 0);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) return;
    if (size <= 0) return Close(c);
    std::string_view rest(buffer_.data(), static_cast<size_t>(size));
    for (size_t end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      c.head.append(rest.substr(0, end));
      rest.remove_prefix(end + 1);
      StatusOr<torpor::v1::DoorLine> line = ParseDoorLine(c.head);
      c.head.clear();
      if (!line.ok()) return Close(c);
      door_->OnControlLine(c.router, *line);
    }
    if (c.head.size() + rest.size() > kDoorLineBytesMax) return Close(c);
    c.head.append(rest);
  }
}

void DoorLoop::FlushControl(Connection& c) {
  bool open = c.control->TakeUnsent(&c.control_out);
  while (!c.control_out.empty()) {
    ssize_t size = send(c.client.get(), c.control_out.data(), c.control_out.size(), MSG_NOSIGNAL);
    if (size < 0 && errno == EINTR) continue;
    if (size < 0 && errno == EAGAIN) break;
    if (size <= 0) return Close(c);
    c.control_out.erase(0, static_cast<size_t>(size));
  }
  if (!open) Close(c);
}

void DoorLoop::Answer(Connection& c, int status, std::string_view reason, int64_t generation) {
  std::string answer = fmt::format(
      "HTTP/1.1 {} {}\r\ntorpor-reason: {}\r\ntorpor-generation: {}\r\nContent-Length: 0\r\n"
      "Connection: close\r\n\r\n",
      status, StatusText(status), reason, generation);
  // Who has read the answer finds the connection no longer counted.
  LeaveGuest(c);
  (void)send(c.client.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
  Close(c);
}

void DoorLoop::LeaveGuest(Connection& c) {
  if (c.guest.valid()) {
    // By name, not by closing: a child that is about to execute holds copies of our descriptors
    // for a moment, and with them the socket and its place in the epoll set.
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, c.guest.get(), nullptr);
    if (!(c.to_guest.finished() && c.to_client.finished())) ResetTcp(c.guest.get());
    c.guest.Reset();
  }
  if (std::shared_ptr<Route> route = std::exchange(c.route, nullptr)) {
    route->Closed(c.flow, c.state == State::kOpen);
  }
}

void DoorLoop::Close(Connection& c) {
  if (c.state == State::kClosed) return;
  LeaveGuest(c);
  if (c.state == State::kHead || c.state == State::kConnecting) --timed_;
  c.state = State::kClosed;
  if (c.control != nullptr) {
    controls_.erase(std::find(controls_.begin(), controls_.end(), &c));
    c.control->Ended();
    door_->RemoveControl(c.control);
  }
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, c.client.get(), nullptr);
  shutdown(c.client.get(), SHUT_RDWR);
  c.client.Reset();
  if (c.again) again_.erase(std::find(again_.begin(), again_.end(), &c));
  --door_->connections_;
  dead_.splice(dead_.end(), connections_, c.self);
}

}  // namespace torpor::worker
