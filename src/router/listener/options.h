#pragma once
// Settings of a router. All durations are real time.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "router/h1/head.h"
#include "router/park/parking_lot.h"

namespace torpor::router {

struct RouterOptions {
  std::vector<std::string> listen = {"127.0.0.1:7780"};  // `ip:port`; port 0 = any.
  std::string admin_listen = "127.0.0.1:4040";           // Empty: none.
  std::function<std::string()> more_metrics;             // Appended to /metrics; may be empty.
  int threads = 0;                                       // 0 = one per core, at most 4.
  std::string router_id = "router";                      // Told to doors.

  std::vector<std::string> actor_domains = {"actors.localhost"};
  std::vector<std::string> target_header_hosts;
  std::vector<std::string> trusted_proxies;  // Addresses or networks (10.0.0.0/8).

  ParkLimits park;
  Duration park_budget = std::chrono::seconds(30);
  // A cold wake extends park_budget up to this. Not what a client or a template asked for.
  Duration park_budget_max = std::chrono::seconds(120);
  size_t park_body_bytes = 16 << 10;

  HeadLimits head_limits;
  size_t connections_max = 20'000;
  size_t connections_per_address = 1'000;  // Not for loopback addresses.
  size_t actor_connections_max = 256;      // Per actor.
  size_t actor_idle_max = 32;              // Per actor.
  Duration actor_idle_time = std::chrono::seconds(60);
  size_t routes_max = 100'000;
  Duration route_ttl = std::chrono::seconds(30);

  // Requests per second; 0 = off.
  int64_t rate_per_address = 0;
  int64_t rate_per_atespace = 0;
  size_t rate_keys_max = 100'000;  // Addresses, and as many atespaces.

  Duration head_timeout = std::chrono::seconds(10);
  Duration first_byte_timeout = std::chrono::minutes(15);   // 0 = none.
  Duration stream_idle_timeout = std::chrono::minutes(10);  // 0 = none.
  Duration keep_alive_timeout = std::chrono::seconds(75);
  Duration door_timeout = std::chrono::seconds(5);       // Until the door has answered.
  Duration report_wait = std::chrono::milliseconds(20);  // For the phases of a wake.
  Duration shutdown_grace = std::chrono::seconds(60);

  bool server_timing = true;
  int access_log_fd = -1;  // Borrowed; -1 = off.
};

// Refuses what could not work: bad addresses, domains, networks. Unless `may_be_public` (there is
// an authorizer, or the operator wants none) also a listener that other machines can reach.
Status CheckOptions(const RouterOptions& options, bool may_be_public);

struct ListenAddress {
  std::string ip;
  int port = 0;  // 0 = any.
  bool loopback = false;
};
StatusOr<ListenAddress> ParseListenAddress(std::string_view text);

// Addresses and networks, IPv4 and IPv6.
class AddressSet {
 public:
  // `a.b.c.d`, `a.b.c.d/n`, and the same for IPv6.
  Status Add(std::string_view text);
  bool Contains(std::string_view address) const;
  bool empty() const { return networks_.empty(); }

 private:
  struct Network {
    std::array<uint8_t, 16> bytes;  // IPv4 in its IPv6-mapped form.
    int bits;
  };
  std::vector<Network> networks_;
};

}  // namespace torpor::router
