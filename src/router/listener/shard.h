#pragma once
// What the connections of one thread share, and what all threads share. Internal to listener/.

#include <atomic>
#include <memory>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/time.h"
#include "router/admit/authorizer.h"
#include "router/admit/rate_limit.h"
#include "router/answer/access_log.h"
#include "router/answer/metrics.h"
#include "router/h1/head.h"
#include "router/idle/activity.h"
#include "router/listener/options.h"
#include "router/listener/timer_wheel.h"
#include "router/park/parking_lot.h"
#include "router/routes/route_cache.h"
#include "router/upstream/net.h"
#include "router/upstream/pool.h"

namespace torpor::router {

class ClientConnection;
class Doors;

// Thread-safe parts only.
struct SharedState {
  SharedState(RouterOptions o, AddressSet p, Clock* c, ActorResolver* r)
      : options(std::move(o)),
        rules(options.actor_domains, options.target_header_hosts),
        proxies(std::move(p)),
        clock(c),
        resolver(r),
        address_rate(options.rate_per_address, options.rate_keys_max),
        atespace_rate(options.rate_per_atespace, options.rate_keys_max),
        cache(options.routes_max, options.route_ttl) {}

  const RouterOptions options;
  const TargetRules rules;
  const AddressSet proxies;
  Clock* const clock;
  ActorResolver* const resolver;
  RateLimit address_rate;
  RateLimit atespace_rate;
  RouteCache cache;
  Metrics metrics;
  ActivityTracker activity;
  std::unique_ptr<ParkingLot> lot;
  Doors* doors = nullptr;                // Set before the threads begin.
  ActivityReporter* reporter = nullptr;  // May stay null.
  Authorizer* authorizer = nullptr;      // Null: everybody may.
  std::atomic<bool> draining{false};
  std::atomic<size_t> connections{0};
};

// How many connections each address has; loopback addresses are not counted. Thread-safe.
class AddressCounter {
 public:
  explicit AddressCounter(size_t max) : max_(max) {}
  bool Add(const std::string& address) EXCLUDES(mu_);
  void Remove(const std::string& address) EXCLUDES(mu_);

 private:
  const size_t max_;
  Mutex mu_;
  std::unordered_map<std::string, size_t> counts_ GUARDED_BY(mu_);
};

// xoshiro256**, seeded from the system: for ids and jitter, not for secrets.
class FastRandom {
 public:
  FastRandom();
  uint64_t Next();
  double Unit() { return static_cast<double>(Next() >> 11) * 0x1.0p-53; }
  // 16 digits per word.
  std::string Hex(int words);

 private:
  uint64_t state_[4];
};

// Everything here is used by the shard's own thread only, except `io` for posting.
struct Shard {
  Shard(SharedState* s, PoolLimits pool_limits)
      : shared(s),
        io(1),
        wheel(s->clock->Now()),
        wheel_timer(io.get_executor()),
        second_timer(io.get_executor()),
        pool(pool_limits),
        log(s->options.access_log_fd) {}

  // Sets a deadline and sees to it that the wheel turns by then.
  void SetTimer(TimerWheel::Entry* entry, MonotonicTime deadline);
  void ArmWheel();

  SharedState* const shared;
  net::io_context io;
  TimerWheel wheel;
  SteadyTimer wheel_timer;
  SteadyTimer second_timer;
  std::optional<MonotonicTime> wheel_armed;
  ActorPool pool;
  AccessLog log;
  FastRandom random;
  std::unordered_set<ClientConnection*> connections;
  std::atomic<size_t> idle_actor_connections{0};  // For the metrics page.
  std::atomic<size_t> busy_actor_connections{0};
  // Memory reused by every parse on this thread.
  RequestHead request_head;
  ResponseHead response_head;
};

// The connections of a shard, held, so that closing one does not disturb the walk. On its thread.
std::vector<std::shared_ptr<ClientConnection>> ConnectionsOf(Shard* shard);

}  // namespace torpor::router
