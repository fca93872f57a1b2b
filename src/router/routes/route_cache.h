#pragma once
// Known routes. A route here is only a hint: the worker's door compares uid and generation and
// refuses what is stale. Thread-safe.

#include <list>
#include <unordered_map>

#include "base/sync.h"
#include "base/time.h"
#include "router/routes/route.h"
#include "router/target/target.h"

namespace torpor::router {

class RouteCache {
 public:
  // Least recently used routes beyond `entries_max` are forgotten; none is used longer than `ttl`
  // after it was put in.
  RouteCache(size_t entries_max, Duration ttl) : entries_max_(entries_max), ttl_(ttl) {}

  // Null when unknown, dropped or too old.
  RoutePtr Find(const ActorKey& key, MonotonicTime now) EXCLUDES(mu_);
  void Put(const ActorKey& key, RoutePtr route, MonotonicTime now) EXCLUDES(mu_);
  // Forgets `route` if it is still the one in use; a newer one stays.
  void Drop(const ActorKey& key, const RoutePtr& route) EXCLUDES(mu_);
  // Makes every route through this door one to be resolved anew.
  void DropDoor(const std::string& door) EXCLUDES(mu_);
  // The settings last seen for the actor, also when its route is not usable any more.
  HttpSettings LastSettings(const ActorKey& key) EXCLUDES(mu_);
  size_t size() const EXCLUDES(mu_);

 private:
  struct Entry {
    ActorKey key;
    RoutePtr route;
    MonotonicTime expires;
    bool usable = true;
  };
  using List = std::list<Entry>;

  const size_t entries_max_;
  const Duration ttl_;
  mutable Mutex mu_;
  List entries_ GUARDED_BY(mu_);  // Most recently used first.
  std::unordered_map<ActorKey, List::iterator, ActorKeyHash> index_ GUARDED_BY(mu_);
};

}  // namespace torpor::router
