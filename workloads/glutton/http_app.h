#pragma once

// The glutton protocol over HTTP: a POST of the serialized request answers the serialized response.
// /readyz and /ping are answered on the server's thread, everything else on a pool, so that both
// answer while memory is being filled. Only for the server's thread.

#include <chrono>
#include <cstdint>
#include <map>
#include <string>

#include "workloads/glutton/service.h"
#include "workloads/http/server.h"
#include "workloads/http/worker_pool.h"

namespace torpor::workloads::glutton {

class HttpApp : public http::App {
 public:
  HttpApp(http::Server* server, Service* service);

  void OnRequest(http::Request request, http::Reply reply) override;
  uint64_t MaxBodyBytes() const override { return 512 << 20; }

  // Counters in the Prometheus text format.
  std::string MetricsText() const;

 private:
  using Handler = http::Response (*)(Service* service, const std::string& body);
  struct Route {
    Handler handler;
    uint64_t requests = 0;
    uint64_t failures = 0;
  };

  void Answer(const std::string& path, const http::Reply& reply, http::Response response);

  http::Server* const server_;
  Service* const service_;
  http::WorkerPool pool_;
  std::map<std::string, Route> routes_;
};

// Serves /metrics (and /readyz) of a HttpApp on another listener.
class MetricsApp : public http::App {
 public:
  explicit MetricsApp(const HttpApp* app) : app_(app) {}
  void OnRequest(http::Request request, http::Reply reply) override;

 private:
  const HttpApp* const app_;
};

}  // namespace torpor::workloads::glutton
