#pragma once
// The HTTP/1.1 listener of the JSON API. What requests mean is handler.h.
//
// Keep-alive, one request at a time per connection; bodies up to kHttpBodyBytesMax, heads up to 32
// KiB, at most 4,096 connections. An idle connection is closed after 60 s, a body must arrive
// within 30 s. Owns its threads; Start and Stop belong to the owner's thread.

#include <cstdint>
#include <memory>
#include <string>

#include "api/http/handler.h"
#include "base/status.h"

namespace torpor::api {

class HttpServer {
 public:
  // `listen` is `address:port` (`[::1]:7701`; port 0 = any free one). `handler` must outlive the
  // server. INVALID_ARGUMENT for a bad address, ALREADY_EXISTS when the port is taken.
  static StatusOr<std::unique_ptr<HttpServer>> Start(const std::string& listen,
                                                     const HttpHandler* handler);
  ~HttpServer();  // Stop()
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // Takes no new request, lets those under way answer until `grace` has passed, closes the rest.
  void Stop(Duration grace = std::chrono::seconds(1));

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace torpor::api
