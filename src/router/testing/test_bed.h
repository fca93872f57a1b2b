#pragma once
// A router with a door, an actor and a control plane made by the test, all in this process.

#include <fcntl.h>

#include <memory>
#include <string>

#include "base/log.h"
#include "router/listener/router.h"
#include "router/testing/fake_door.h"
#include "router/testing/fake_reporter.h"
#include "router/testing/fake_resolver.h"
#include "router/testing/sockets.h"

namespace torpor::router {

inline constexpr char kUid[] = "00000000-0000-4000-8000-000000000001";
inline constexpr char kHost[] = "a.demo.actors.localhost";

inline std::string Get(const std::string& path, const std::string& extra = "") {
  return "GET " + path + " HTTP/1.1\r\nHost: " + std::string(kHost) + "\r\n" + extra + "\r\n";
}

inline std::string Ok(const std::string& body, const std::string& extra = "") {
  return "HTTP/1.1 200 OK\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" + extra +
         "\r\n" + body;
}

// Answers every request without a body with its number on this connection.
inline void CountingActor(Peer& peer) {
  for (int n = 1; !peer.ReadHead().empty(); ++n) {
    if (!peer.Send(Ok(std::to_string(n)))) return;
  }
}

inline Route RouteTo(const FakeDoor& door, int64_t generation = 7) {
  Route route;
  route.uid = kUid;
  route.generation = generation;
  route.door = door.address();
  route.ports = {80, 9000};
  return route;
}

inline RouterOptions TestOptions() {
  RouterOptions options;
  // Written like anywhere else, so that every test reads what its lines refer to.
  static const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
  options.access_log_fd = nowhere;
  options.listen = {"127.0.0.1:0"};
  options.admin_listen = "127.0.0.1:0";
  options.threads = 1;
  options.shutdown_grace = std::chrono::milliseconds(0);
  return options;
}

// A router before one door whose actor is running.
class TestBed {
 public:
  explicit TestBed(FakeDoor::Actor actor, RouterOptions options = TestOptions(),
                   FakeDoor::Gate gate = nullptr, Clock* clock = Clock::Real(),
                   Authorizer* authorizer = nullptr)
      : door(std::move(actor), std::move(gate)), resolver([this](const ActorKey&, int) {
          return StatusOr<ActorResolver::Answer>(FakeResolver::Running(route));
        }) {
    route = RouteTo(door);
    auto started = Router::Start(std::move(options), {&resolver, &reporter, clock, authorizer});
    CHECK(started.ok());
    router = std::move(started).value();
  }
  Peer Client() { return Peer::ConnectTcp(router->port()); }
  std::string Metrics() {
    Peer peer = Peer::ConnectTcp(router->admin_port());
    peer.Send("GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    return peer.ReadToEnd();
  }

  FakeDoor door;
  Route route;
  FakeReporter reporter;
  FakeResolver resolver;
  std::unique_ptr<Router> router;
};

// A router whose control plane answers when the test says so.
class ParkingBed {
 public:
  explicit ParkingBed(RouterOptions options = TestOptions(), FakeDoor::Gate gate = nullptr)
      : door(CountingActor, std::move(gate)) {
    auto started = Router::Start(std::move(options), {&resolver, nullptr, Clock::Real()});
    CHECK(started.ok());
    router = std::move(started).value();
  }
  Peer Client() { return Peer::ConnectTcp(router->port()); }
  // Until exactly so many requests wait for actors.
  bool WaitForWaiting(int64_t n) {
    auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (std::chrono::steady_clock::now() < deadline) {
      Peer peer = Peer::ConnectTcp(router->admin_port());
      peer.Send("GET /statusz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
      std::string page = peer.ReadToEnd();
      if (Number(page, "\"parked\":") + Number(page, "\"looking_up\":") == n) return true;
      std::this_thread::yield();
    }
    return false;
  }

  FakeDoor door;
  FakeResolver resolver;
  std::unique_ptr<Router> router;

 private:
  static int64_t Number(const std::string& page, const std::string& key) {
    size_t at = page.find(key);
    return at == std::string::npos ? -1 : atoll(page.c_str() + at + key.size());
  }
};

}  // namespace torpor::router
