#pragma once
// nginx as a plain proxy in front of a small HTTP server: what a proxy costs that knows no actors.

#include <memory>
#include <string>

#include "base/status.h"
#include "os/process/process.h"
#include "runtime/fake/fake_guest.h"

namespace torpor::bench {

// One worker process, kept-alive connections on both sides, no log. Belongs to one thread.
class Nginx {
 public:
  // Files go to `dir`. NOT_FOUND without nginx (Debian package nginx-light).
  static StatusOr<std::unique_ptr<Nginx>> Start(const std::string& dir);
  ~Nginx();

  const std::string& address() const { return address_; }  // host:port
  pid_t pid() const { return process_.pid(); }

 private:
  Nginx() = default;
  std::unique_ptr<runtime::HttpListener> upstream_;
  os::Process process_;
  std::string address_;
};

}  // namespace torpor::bench
