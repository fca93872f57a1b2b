#pragma once
// Connections to actors that can be used again. One pool per thread, not thread-safe.
//
// A connection belongs to (uid, generation, port) for life; when a newer generation of the uid is
// seen, idle ones of older generations are closed at once.

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "router/upstream/actor_connection.h"

namespace torpor::router {

struct PoolLimits {
  size_t per_actor_max = 256;      // In use, per thread.
  size_t idle_per_actor_max = 32;  // Per thread.
  Duration idle_max = std::chrono::seconds(60);
};

class ActorPool {
 public:
  explicit ActorPool(PoolLimits limits) : limits_(limits) {}

  // Counts one more connection in use for the actor; false: it has its maximum. Every success is
  // followed by exactly one Release.
  bool Reserve(const std::string& uid);
  // An idle connection for a reserved use, or null: the caller dials one.
  std::shared_ptr<ActorConnection> TakeIdle(const Route& route, int port);
  // Ends a use. `connection` may be null; it is kept if `reusable` and there is room, else closed.
  void Release(const std::string& uid, std::shared_ptr<ActorConnection> connection, bool reusable,
               MonotonicTime now);
  // `call` runs once when a use of the actor ends, unless it returns false, then the next one runs.
  void Wait(const std::string& uid, std::function<bool()> call);

  void GenerationSeen(const std::string& uid, int64_t generation);
  // Closes the idle connections of one activation: it is being put to sleep, or gone.
  void CloseIdleOf(const std::string& uid, int64_t generation);
  // Closes what was idle for too long or was closed by the other side. About once a second.
  void Sweep(MonotonicTime now);
  void CloseIdle();

  size_t idle() const { return idle_count_; }
  size_t busy() const { return busy_count_; }

 private:
  struct Actor {
    int64_t generation = 0;  // The newest seen.
    size_t busy = 0;
    std::vector<std::shared_ptr<ActorConnection>> idle;  // Newest last.
    std::deque<std::function<bool()>> waiting;
  };
  template <typename Keep>
  void FilterIdle(Actor* actor, Keep keep);

  const PoolLimits limits_;
  std::unordered_map<std::string, Actor> actors_;  // By uid.
  size_t idle_count_ = 0;
  size_t busy_count_ = 0;
};

}  // namespace torpor::router
