#pragma once
// gRPC services on a unix socket that only known users can reach.
//
// The socket is made with mode 0600, given to `owner_uid`, and appears under its name only when it
// accepts connections; a socket file that nobody serves any more is replaced. The kernel tells the
// uid of each peer (SO_PEERCRED): other users' connections are closed before gRPC sees them.
//
// Services must outlive the server. Start and Shutdown belong to the owner's thread; calls run on
// gRPC's threads. Errors of Start: ALREADY_EXISTS when another process serves the path, else the
// errno of the failing step.

#include <sys/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "base/unique_fd.h"

namespace grpc {
class Server;
class ServerBuilder;
class Service;
}  // namespace grpc

namespace torpor::rpc {

struct UnixServerOptions {
  // Besides root, the process's own user and `owner_uid`, which may always connect.
  std::vector<uid_t> allowed_uids;
  std::optional<uid_t> owner_uid;  // unset = the process's user
  int message_bytes_max = 16 << 20;
  // Adds what is no plain service, such as a generic one; may be empty.
  std::function<void(grpc::ServerBuilder*)> configure;
};

class UnixServer {
 public:
  static StatusOr<std::unique_ptr<UnixServer>> Start(const std::string& path,
                                                     std::vector<grpc::Service*> services,
                                                     UnixServerOptions options = {});
  ~UnixServer();  // Shutdown(), if it was not called
  UnixServer(const UnixServer&) = delete;
  UnixServer& operator=(const UnixServer&) = delete;

  // Takes no new connection, lets running calls end until `grace` has passed, cancels the rest,
  // removes the socket file if it is still ours. Returns when no handler runs any more. Idempotent.
  void Shutdown(Duration grace = std::chrono::seconds(1));

  const std::string& path() const { return path_; }

 private:
  UnixServer(std::string path, UnixServerOptions options);
  Status Listen();
  void AcceptLoop();
  bool MayConnect(int fd) const;

  const std::string path_;
  const UnixServerOptions options_;
  UniqueFd listener_;
  UniqueFd stop_event_;
  dev_t device_ = 0;  // identity of the socket file, so that only our own is removed
  ino_t inode_ = 0;
  std::unique_ptr<grpc::Server> server_;
  std::thread acceptor_;
  bool stopped_ = false;
};

}  // namespace torpor::rpc
