#include "router/upstream/actor_connection.h"

#include <boost/asio/write.hpp>

#include <sys/socket.h>

#include "router/h1/head.h"
#include "router/upstream/endpoint.h"
#include "router/upstream/tcp_options.h"

namespace torpor::router {
namespace {

constexpr size_t kDoorHeadMax = 8 << 10;

}  // namespace

void ActorConnection::Dial(std::string_view router_id) {
  door_request_ = DoorRequest(*route_, port_, router_id);
  auto self = shared_from_this();
  StatusOr<DoorAddress> address = ParseDoorAddress(route_->door);
  if (!address.ok()) {
    net::post(socket_.get_executor(), [self] { self->TellDoor(std::nullopt); });
    return;
  }
  socket_.async_connect(EndpointOf(*address),
                        [self, tcp = address->path.empty()](const ErrorCode& error) {
                          if (tcp && !error) TuneTcp(self->socket_.native_handle());
                          self->OnConnected(error);
                        });
}

void ActorConnection::OnConnected(const ErrorCode& error) {
  if (closed_) return;
  if (error) return TellDoor(std::nullopt);
  auto self = shared_from_this();
  net::async_write(socket_, net::buffer(door_request_), [self](const ErrorCode& e, size_t) {
    if (self->closed_) return;
    if (e) return self->TellDoor(std::nullopt);
    self->ReadDoor();
  });
}

void ActorConnection::ReadDoor() {
  size_t room = in_.Prepare(1024, kDoorHeadMax);
  if (room == 0) return TellDoor(std::nullopt);
  auto self = shared_from_this();
  socket_.async_read_some(net::buffer(in_.tail(), room),
                          [self](const ErrorCode& e, size_t n) { self->OnDoorBytes(e, n); });
}

void ActorConnection::OnDoorBytes(const ErrorCode& error, size_t n) {
  if (closed_) return;
  if (error) return TellDoor(std::nullopt);
  in_.Commit(n);
  HeadScanner scanner;
  switch (scanner.Scan(in_.view())) {
    case HeadScanner::State::kMore:
      return ReadDoor();
    case HeadScanner::State::kBad:
      return TellDoor(std::nullopt);
    case HeadScanner::State::kComplete:
      break;
  }
  std::optional<DoorAnswer> answer = ParseDoorAnswer(in_.view().substr(0, scanner.size()));
  in_.Consume(scanner.size());
  TellDoor(std::move(answer));
}

void ActorConnection::TellDoor(std::optional<DoorAnswer> answer) {
  auto user = user_;
  if (!closed_ && user) user->OnDoor(std::move(answer));
}

void ActorConnection::WantRead(size_t limit) {
  if (closed_ || read_pending_) return;
  size_t room = in_.Prepare(std::min<size_t>(limit, 16 << 10), limit);
  if (room == 0) return;
  read_pending_ = true;
  auto self = shared_from_this();
  socket_.async_read_some(net::buffer(in_.tail(), room), [self](const ErrorCode& e, size_t n) {
    self->read_pending_ = false;
    if (self->closed_) return;
    auto user = self->user_;
    if (e) {
      if (user) user->OnActorEnd(e == net::error::eof);
      return;
    }
    self->in_.Commit(n);
    if (user) user->OnActorBytes();
  });
}

void ActorConnection::Write(const std::array<net::const_buffer, 4>& buffers) {
  write_pending_ = true;
  auto self = shared_from_this();
  net::async_write(socket_, buffers, [self](const ErrorCode& e, size_t) {
    self->write_pending_ = false;
    auto user = self->user_;
    if (!self->closed_ && user) user->OnActorWritten(!e);
  });
}

void ActorConnection::ShutdownSend() {
  ErrorCode ignored;
  socket_.shutdown(Socket::shutdown_send, ignored);
}

void ActorConnection::Close() {
  if (closed_) return;
  closed_ = true;
  user_.reset();
  ErrorCode ignored;
  socket_.close(ignored);
}

bool ActorConnection::IsQuiet() {
  char byte;
  ssize_t n = recv(socket_.native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
}

}  // namespace torpor::router
