#pragma once
// /healthz, /readyz, /statusz and /metrics, on a port of their own. Internal to listener/.

#include <functional>
#include <memory>
#include <string>

#include "router/upstream/net.h"
#include "router/upstream/read_buffer.h"

namespace torpor::router {

struct AdminPages {
  std::function<bool()> ready;
  std::function<std::string()> status;
  std::function<std::string()> metrics;
};

// The answer to `head`, a whole message. Only GET and HEAD, and only under an address or localhost,
// so that a web page cannot read it by DNS rebinding.
std::string AdminAnswer(std::string_view head, const AdminPages& pages);

// Serves one request and closes. Keeps itself alive.
class AdminConnection : public std::enable_shared_from_this<AdminConnection> {
 public:
  AdminConnection(Socket socket, const AdminPages* pages)
      : socket_(std::move(socket)), deadline_(socket_.get_executor()), pages_(pages) {}
  void Start();

 private:
  void Read();

  Socket socket_;
  SteadyTimer deadline_;
  const AdminPages* const pages_;
  ReadBuffer in_;
  std::string answer_;
};

}  // namespace torpor::router
