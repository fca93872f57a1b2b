#pragma once
// One epoll thread of a door and the connections that live on it. Internal to the door.
//
// Everything but Start, Stop and CloseRoute happens on the loop's own thread.

#include <sys/epoll.h>

#include <array>
#include <atomic>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "base/sync.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "worker/door/connect_head.h"
#include "worker/door/door.h"
#include "worker/door/route.h"
#include "worker/door/tunnel.h"

namespace torpor::worker {

class DoorLoop {
 public:
  DoorLoop(Door* door, Clock* clock) : door_(door), clock_(clock) {}
  ~DoorLoop() { Stop(); }
  Status Start();
  // Ends the thread and closes its connections. Channels of them may still be told something.
  void Stop() EXCLUDES(mu_);
  // Closes the connections of `route` soon; Route::WaitEmpty tells when.
  void CloseRoute(std::shared_ptr<Route> route) EXCLUDES(mu_);

 private:
  enum class State { kHead, kConnecting, kOpen, kControl, kClosed };
  struct Connection;
  // What an epoll event points to: one end of a connection.
  struct End {
    Connection* connection = nullptr;
    bool is_guest = false;
  };
  struct Connection {
    UniqueFd client;
    UniqueFd guest;
    End client_end;
    End guest_end;
    State state = State::kHead;
    std::string head;  // and the line under way of a control connection
    std::string router;
    std::shared_ptr<Route> route;
    std::shared_ptr<Flow> flow;  // of kOpen
    std::shared_ptr<ControlChannel> control;
    std::string control_out;
    MonotonicTime deadline;  // of kHead and kConnecting
    Tunnel to_guest;
    Tunnel to_client;
    bool again = false;  // is in again_
    std::list<std::unique_ptr<Connection>>::iterator self;
  };

  void Run();
  void Accept();
  void HandleEvent(const epoll_event& event);
  void HandleClient(Connection& c, uint32_t events);
  void HandleGuest(Connection& c, uint32_t events);
  void ReadHead(Connection& c);
  void Connect(Connection& c, const ConnectTarget& target);
  void FinishConnect(Connection& c);
  void PumpBoth(Connection& c);
  void StartControl(Connection& c);
  void ReadControl(Connection& c);
  void FlushControl(Connection& c);
  void Answer(Connection& c, int status, std::string_view reason, int64_t generation);
  // Ends the guest's side and takes the connection off its route.
  void LeaveGuest(Connection& c);
  void Close(Connection& c);
  bool Watch(int fd, End* end);
  void HandleWakeUp();
  void CloseOverdue();

  Door* const door_;
  Clock* const clock_;
  UniqueFd epoll_;
  UniqueFd wake_;
  UniqueFd reserve_;  // given up for a moment when descriptors run out
  std::list<std::unique_ptr<Connection>> connections_;
  std::list<std::unique_ptr<Connection>> dead_;  // until the batch of events was handled
  std::vector<Connection*> again_;
  std::vector<Connection*> controls_;
  size_t timed_ = 0;  // connections with a deadline
  std::array<char, 64 << 10> buffer_;
  Mutex mu_;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::vector<std::shared_ptr<Route>> to_close_ GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace torpor::worker
