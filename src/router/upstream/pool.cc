#include "router/upstream/pool.h"

#include <algorithm>

namespace torpor::router {

template <typename Keep>
void ActorPool::FilterIdle(Actor* actor, Keep keep) {
  auto& idle = actor->idle;
  auto end = std::remove_if(idle.begin(), idle.end(), [&](const auto& connection) {
    if (keep(*connection)) return false;
    connection->Close();
    --idle_count_;
    return true;
  });
  idle.erase(end, idle.end());
}

bool ActorPool::Reserve(const std::string& uid) {
  Actor& actor = actors_[uid];
  if (actor.busy >= limits_.per_actor_max) return false;
  ++actor.busy;
  ++busy_count_;
  return true;
}

std::shared_ptr<ActorConnection> ActorPool::TakeIdle(const Route& route, int port) {
  GenerationSeen(route.uid, route.generation);
  auto& idle = actors_[route.uid].idle;
  for (size_t i = idle.size(); i > 0; --i) {
    std::shared_ptr<ActorConnection> connection = idle[i - 1];
    if (connection->port() != port || connection->route()->generation != route.generation ||
        connection->route()->door != route.door) {
      continue;
    }
    idle.erase(idle.begin() + static_cast<ptrdiff_t>(i - 1));
    --idle_count_;
    if (connection->IsQuiet()) return connection;
    connection->Close();
  }
  return nullptr;
}

void ActorPool::Release(const std::string& uid, std::shared_ptr<ActorConnection> connection,
                        bool reusable, MonotonicTime now) {
  auto it = actors_.find(uid);
  Actor& actor = it->second;
  --actor.busy;
  --busy_count_;
  if (connection != nullptr) {
    connection->Detach();
    bool keep = reusable && connection->route()->generation >= actor.generation &&
                actor.idle.size() < limits_.idle_per_actor_max && limits_.idle_max.count() > 0;
    if (keep) {
      connection->idle_since = now;
      connection->in().Shrink();
      actor.idle.push_back(std::move(connection));
      ++idle_count_;
    } else {
      connection->Close();
    }
  }
  while (!actor.waiting.empty()) {
    auto call = std::move(actor.waiting.front());
    actor.waiting.pop_front();
    if (call()) break;
  }
}

void ActorPool::Wait(const std::string& uid, std::function<bool()> call) {
  actors_[uid].waiting.push_back(std::move(call));
}

void ActorPool::GenerationSeen(const std::string& uid, int64_t generation) {
  auto it = actors_.find(uid);
  if (it == actors_.end() || it->second.generation >= generation) return;
  it->second.generation = generation;
  FilterIdle(&it->second, [generation](const ActorConnection& connection) {
    return connection.route()->generation >= generation;
  });
}

void ActorPool::CloseIdleOf(const std::string& uid, int64_t generation) {
  auto it = actors_.find(uid);
  if (it == actors_.end()) return;
  FilterIdle(&it->second, [generation](const ActorConnection& connection) {
    return connection.route()->generation != generation;
  });
}

void ActorPool::Sweep(MonotonicTime now) {
  for (auto it = actors_.begin(); it != actors_.end();) {
    Actor& actor = it->second;
    FilterIdle(&actor, [&](ActorConnection& connection) {
      return now - connection.idle_since < limits_.idle_max && connection.IsQuiet();
    });
    bool unused = actor.idle.empty() && actor.busy == 0 && actor.waiting.empty();
    it = unused ? actors_.erase(it) : std::next(it);
  }
}

void ActorPool::CloseIdle() {
  for (auto& [uid, actor] : actors_) {
    FilterIdle(&actor, [](const ActorConnection&) { return false; });
  }
}

}  // namespace torpor::router
