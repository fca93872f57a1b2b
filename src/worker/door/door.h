#pragma once
// The one way to a guest: an HTTP/1.1 CONNECT server on a unix socket.
//
//   CONNECT <uid>.<generation>.actor.torpor:<port> HTTP/1.1
//   200, then bytes both ways, or one of 404 NOT_HERE, 409 STALE_GENERATION, 503 DRAINING,
//   503 TOO_MANY_CONNECTIONS, 403 NO_SUCH_PORT, 502 CONNECT_REFUSED, 400 BAD_REQUEST, each with
//   torpor-reason and torpor-generation (of the actor here; 0 = none).
//
//   GET /torpor/control HTTP/1.1, Upgrade: torpor-control/1
//   101, then lines (model/door_line.h): the door says drain, undrain and gone, the router drained
//   or busy. One per router, which a newer one of the same name replaces.
//
// The socket is 0600, belongs to `socket_user`, and only that user, root and the worker's own user
// are served. A connection lives on one of a few epoll threads. All methods are thread-safe; those
// for one uid are called by one operation at a time.

#include <sys/types.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "worker/door/control_channel.h"
#include "worker/door/drain.h"
#include "worker/door/route.h"

namespace torpor::worker {

class DoorLoop;

struct DoorOptions {
  std::string path;  // absolute; a stale socket there is replaced
  std::optional<uid_t> socket_user;
  int threads = 2;
  Duration head_timeout = std::chrono::seconds(10);
  Duration connect_timeout = std::chrono::seconds(2);
  int connections_max = 8192;  // of the whole door; above, new ones are closed
};

enum class DrainOutcome { kDrained, kBusy };

class Door {
 public:
  static StatusOr<std::unique_ptr<Door>> Start(DoorOptions options, Clock* clock);
  ~Door();  // closes every connection, removes the socket
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  std::string address() const { return "unix:" + options_.path; }

  // From here on the actor is reachable. Replaces an earlier route of the uid.
  void Add(const std::string& uid, int64_t generation, std::vector<int> ports, DialFunction dial)
      EXCLUDES(mu_);
  // No new connection; pending ones end, requests in flight get the grace, the rest is reset. The
  // routers say what is in flight; bytes say it for whoever has no control connection. On return
  // nothing more is sent to the guest; whether it has seen the end yet is for the caller to find
  // out (probe/settle.h). An unknown uid is kDrained.
  DrainOutcome Drain(const std::string& uid, const DrainOptions& options) EXCLUDES(mu_);
  void Undrain(const std::string& uid) EXCLUDES(mu_);
  // Closes all connections of the actor and forgets it. `reason` is for the routers: captured,
  // stopped or exited.
  void Remove(const std::string& uid, std::string_view reason) EXCLUDES(mu_);
  Route::Counts CountsOf(const std::string& uid) const EXCLUDES(mu_);

 private:
  friend class DoorLoop;
  Door(DoorOptions options, Clock* clock);
  Status Listen();
  std::shared_ptr<Route> Find(const std::string& uid) const EXCLUDES(mu_);
  // Called by the loops. False: there are too many.
  bool AddControl(const std::shared_ptr<ControlChannel>& channel) EXCLUDES(mu_);
  void RemoveControl(const std::shared_ptr<ControlChannel>& channel) EXCLUDES(mu_);
  void OnControlLine(const std::string& router, const torpor::v1::DoorLine& line) EXCLUDES(mu_);
  std::shared_ptr<ControlChannel> ControlOf(const std::string& router) const EXCLUDES(mu_);
  void AskToDrain(Route& route, const std::vector<std::string>& routers) EXCLUDES(mu_);
  void TellRouters(const Route& route, const torpor::v1::DoorLine& line) EXCLUDES(mu_);
  void CloseConnections(const std::shared_ptr<Route>& route);
  bool MayConnect(int fd) const;

  const DoorOptions options_;
  Clock* const clock_;
  UniqueFd listener_;
  ino_t inode_ = 0;  // of the socket file, so that only our own is removed
  std::atomic<int> connections_{0};
  mutable Mutex mu_;
  std::map<std::string, std::shared_ptr<Route>, std::less<>> routes_ GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<ControlChannel>> controls_ GUARDED_BY(mu_);  // By router.
  std::vector<std::unique_ptr<DoorLoop>> loops_;  // const after Start
};

}  // namespace torpor::worker
