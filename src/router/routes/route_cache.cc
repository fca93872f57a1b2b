#include "router/routes/route_cache.h"

namespace torpor::router {

RoutePtr RouteCache::Find(const ActorKey& key, MonotonicTime now) {
  MutexLock lock(&mu_);
  auto it = index_.find(key);
  if (it == index_.end()) return nullptr;
  Entry& entry = *it->second;
  if (!entry.usable || now >= entry.expires) return nullptr;
  if (it->second != entries_.begin()) entries_.splice(entries_.begin(), entries_, it->second);
  return entry.route;
}

void RouteCache::Put(const ActorKey& key, RoutePtr route, MonotonicTime now) {
  MutexLock lock(&mu_);
  auto it = index_.find(key);
  if (it != index_.end()) {
    Entry& entry = *it->second;
    // Two answers can arrive in the wrong order; the older activation must not win.
    if (entry.route->uid == route->uid && entry.route->generation > route->generation) return;
    entry.route = std::move(route);
    entry.expires = now + ttl_;
    entry.usable = true;
    entries_.splice(entries_.begin(), entries_, it->second);
    return;
  }
  entries_.push_front(Entry{key, std::move(route), now + ttl_, true});
  index_[key] = entries_.begin();
  if (entries_.size() > entries_max_) {
    index_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

void RouteCache::Drop(const ActorKey& key, const RoutePtr& route) {
  MutexLock lock(&mu_);
  auto it = index_.find(key);
  if (it != index_.end() && it->second->route == route) it->second->usable = false;
}

void RouteCache::DropDoor(const std::string& door) {
  MutexLock lock(&mu_);
  for (Entry& entry : entries_) {
    if (entry.route->door == door) entry.usable = false;
  }
}

HttpSettings RouteCache::LastSettings(const ActorKey& key) {
  MutexLock lock(&mu_);
  auto it = index_.find(key);
  return it == index_.end() ? HttpSettings() : it->second->route->http;
}

size_t RouteCache::size() const {
  MutexLock lock(&mu_);
  return entries_.size();
}

}  // namespace torpor::router
