#pragma once
// The router's end of the control connection to one door.
//
// Belongs to one thread; kept alive by its own reads. Ends for good at the first error: whoever
// wants another one makes it.

#include <memory>
#include <string>

#include "router/upstream/door.h"
#include "router/upstream/net.h"
#include "router/upstream/read_buffer.h"
#include "torpor/v1/door.pb.h"

namespace torpor::router {

class ControlLink : public std::enable_shared_from_this<ControlLink> {
 public:
  class User {
   public:
    virtual ~User() = default;
    virtual void OnControlOpen(ControlLink* link) = 0;
    virtual void OnControlLine(ControlLink* link, const torpor::v1::DoorLine& line) = 0;
    // Nothing comes after it. Not called by Close.
    virtual void OnControlLost(ControlLink* link) = 0;
  };

  // The user outlives the link or closes it.
  ControlLink(net::io_context& io, std::string door, User* user)
      : socket_(io.get_executor()), door_(std::move(door)), user_(user) {}

  void Open(std::string_view router_id);
  void Send(const torpor::v1::DoorLine& line);
  void Close();

  const std::string& door() const { return door_; }

 private:
  void Read();
  void OnBytes(size_t n);
  void Write();
  void Lose();

  Socket socket_;
  const std::string door_;
  User* user_;  // Null: closed.
  bool open_ = false;
  bool writing_ = false;
  ReadBuffer in_;
  std::string out_;
  std::string unsent_;
};

}  // namespace torpor::router
