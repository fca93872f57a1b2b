#pragma once
// /healthz, /readyz and /metrics of a role that has no HTTP listener of its own.
//
// One thread, one connection at a time, GET and HEAD only: who scrapes comes every few seconds.
// Requests are read and answered by the code of the router's admin port. A connection that does not
// send its request within 2 s is closed.

#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "base/status.h"
#include "base/unique_fd.h"
#include "router/listener/admin.h"

namespace torpor {

class AdminListener {
 public:
  // `listen` is `unix:PATH` (made with mode 0600, a file that is there is replaced) or
  // ADDRESS:PORT. INVALID_ARGUMENT for what is neither, else the errno of the failing step. `pages`
  // must stay callable until the destructor returns.
  static StatusOr<std::unique_ptr<AdminListener>> Start(const std::string& listen,
                                                        router::AdminPages pages);
  ~AdminListener();
  AdminListener(const AdminListener&) = delete;
  AdminListener& operator=(const AdminListener&) = delete;

  // unix:PATH, or ADDRESS:PORT with the port in use.
  const std::string& address() const { return address_; }

 private:
  explicit AdminListener(router::AdminPages pages) : pages_(std::move(pages)) {}
  Status ListenUnix(const std::string& path);
  Status ListenTcp(const std::string& listen);
  void Serve();
  void Answer(int fd);

  const router::AdminPages pages_;
  std::string address_;
  std::string path_;  // of the socket file, removed at the end
  UniqueFd listener_;
  UniqueFd stop_;  // an eventfd
  std::thread thread_;
};

}  // namespace torpor
