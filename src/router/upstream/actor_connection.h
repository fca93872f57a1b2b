#pragma once
// One connection into an actor, through its worker's door.
//
// Belongs to one thread. It serves one exchange at a time (its user) or lies idle in the pool. A
// user that goes away without an end of the exchange closes it; nobody else ever gets it then.

#include <array>
#include <memory>
#include <string>

#include "base/time.h"
#include "router/upstream/door.h"
#include "router/upstream/net.h"
#include "router/upstream/read_buffer.h"

namespace torpor::router {

class ActorConnection : public std::enable_shared_from_this<ActorConnection> {
 public:
  // Calls of a closed connection never come.
  class User {
   public:
    virtual ~User() = default;
    // The door's answer; no value when there is none to be had (no door, or not a door).
    virtual void OnDoor(std::optional<DoorAnswer> answer) = 0;
    virtual void OnActorBytes() = 0;
    // `clean`: the actor ended its stream; else the connection broke.
    virtual void OnActorEnd(bool clean) = 0;
    virtual void OnActorWritten(bool ok) = 0;
  };

  ActorConnection(net::io_context& io, RoutePtr route, int port)
      : socket_(io.get_executor()), route_(std::move(route)), port_(port) {}
  ActorConnection(const ActorConnection&) = delete;
  ActorConnection& operator=(const ActorConnection&) = delete;

  // Keeps `user` alive until Detach or Close.
  void Attach(std::shared_ptr<User> user) { user_ = std::move(user); }
  void Detach() { user_.reset(); }
  // Connects and asks the door; OnDoor follows, never before Dial returns.
  void Dial(std::string_view router_id);
  // Up to `limit` unread bytes are buffered; one read at a time.
  void WantRead(size_t limit);
  // The buffers' memory must stay until OnActorWritten. One write at a time.
  void Write(const std::array<net::const_buffer, 4>& buffers);
  void ShutdownSend();
  void Close();

  // True when an idle connection is still as it was left: open and silent.
  bool IsQuiet();

  ReadBuffer& in() { return in_; }
  const RoutePtr& route() const { return route_; }
  int port() const { return port_; }
  bool reused() const { return exchanges_ > 1; }
  void CountExchange() { ++exchanges_; }
  bool read_pending() const { return read_pending_; }
  bool write_pending() const { return write_pending_; }

  MonotonicTime idle_since{};  // For the pool.

 private:
  void OnConnected(const ErrorCode& error);
  void ReadDoor();
  void OnDoorBytes(const ErrorCode& error, size_t n);
  void TellDoor(std::optional<DoorAnswer> answer);

  Socket socket_;
  const RoutePtr route_;
  const int port_;
  std::shared_ptr<User> user_;
  ReadBuffer in_;
  std::string door_request_;
  int exchanges_ = 0;
  bool read_pending_ = false;
  bool write_pending_ = false;
  bool closed_ = false;
};

}  // namespace torpor::router
