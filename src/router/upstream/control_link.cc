#include "router/upstream/control_link.h"

#include <boost/asio/write.hpp>

#include "base/log.h"
#include "model/door_line.h"
#include "router/h1/head.h"
#include "router/upstream/endpoint.h"

namespace torpor::router {
namespace {

constexpr size_t kReadMax = 8 << 10;
constexpr size_t kUnsentMax = 1 << 20;

}  // namespace

void ControlLink::Open(std::string_view router_id) {
  auto self = shared_from_this();
  StatusOr<DoorAddress> address = ParseDoorAddress(door_);
  if (!address.ok()) {
    net::post(socket_.get_executor(), [self] { self->Lose(); });
    return;
  }
  out_ = ControlRequest(router_id);
  socket_.async_connect(EndpointOf(*address), [self](const ErrorCode& error) {
    if (error) return self->Lose();
    self->Write();
    self->Read();
  });
}

void ControlLink::Send(const torpor::v1::DoorLine& line) {
  if (user_ == nullptr) return;
  unsent_ += FormatDoorLine(line);
  if (unsent_.size() > kUnsentMax) return Lose();
  if (!writing_ && open_) {
    out_.swap(unsent_);
    Write();
  }
}

void ControlLink::Write() {
  writing_ = true;
  net::async_write(socket_, net::buffer(out_),
                   [self = shared_from_this()](const ErrorCode& error, size_t) {
                     self->writing_ = false;
                     self->out_.clear();
                     if (error) return self->Lose();
                     if (!self->open_ || self->unsent_.empty()) return;
                     self->out_.swap(self->unsent_);
                     self->Write();
                   });
}

void ControlLink::Read() {
  size_t room = in_.Prepare(1024, kReadMax);
  if (room == 0) return Lose();  // A line longer than any that is allowed.
  socket_.async_read_some(net::buffer(in_.tail(), room),
                          [self = shared_from_this()](const ErrorCode& error, size_t n) {
                            if (error) return self->Lose();
                            self->OnBytes(n);
                          });
}

void ControlLink::OnBytes(size_t n) {
  in_.Commit(n);
  if (user_ == nullptr) return;
  if (!open_) {
    HeadScanner scanner;
    HeadScanner::State state = scanner.Scan(in_.view());
    if (state == HeadScanner::State::kMore) return Read();
    if (state == HeadScanner::State::kBad || !in_.view().starts_with("HTTP/1.1 101 ")) {
      return Lose();
    }
    in_.Consume(scanner.size());
    open_ = true;
    user_->OnControlOpen(this);
    if (user_ != nullptr && !writing_ && !unsent_.empty()) {
      out_.swap(unsent_);
      Write();
    }
  }
  while (user_ != nullptr) {
    size_t end = in_.view().find('\n');
    if (end == std::string_view::npos) {
      if (in_.size() > kDoorLineBytesMax) return Lose();
      return Read();
    }
    StatusOr<torpor::v1::DoorLine> line = ParseDoorLine(in_.view().substr(0, end));
    in_.Consume(end + 1);
    if (!line.ok()) {
      LogWarning("a door says what is not understood", {{"door", door_}});
      return Lose();
    }
    user_->OnControlLine(this, *line);
  }
}

void ControlLink::Lose() {
  User* user = user_;
  Close();
  if (user != nullptr) user->OnControlLost(this);
}

void ControlLink::Close() {
  user_ = nullptr;
  ErrorCode ignored;
  socket_.close(ignored);
}

}  // namespace torpor::router
