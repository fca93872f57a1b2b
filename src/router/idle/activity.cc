#include "router/idle/activity.h"

namespace torpor::router {
namespace {

// Cells without use are kept this long, so that an actor with slow traffic keeps its record.
constexpr Duration kForgetAfter = std::chrono::minutes(10);

}  // namespace

std::shared_ptr<ActivityCell> ActivityTracker::Cell(const std::string& uid, int64_t generation) {
  MutexLock lock(&mu_);
  std::shared_ptr<ActivityCell>& cell = cells_[uid];
  if (cell == nullptr || cell->generation_ < generation) {
    if (cell != nullptr && cell->open() > 0) older_.push_back(cell);
    cell = std::make_shared<ActivityCell>(uid, generation);
  }
  return cell;
}

std::shared_ptr<ActivityCell> ActivityTracker::Find(const std::string& uid, int64_t generation) {
  MutexLock lock(&mu_);
  auto it = cells_.find(uid);
  if (it != cells_.end() && it->second->generation_ == generation) return it->second;
  for (const auto& cell : older_) {
    if (cell->uid_ == uid && cell->generation_ == generation) return cell;
  }
  return nullptr;
}

torpor::v1::ReportActivityRequest ActivityTracker::Collect(WallTime now) {
  torpor::v1::ReportActivityRequest request;
  MutexLock lock(&mu_);
  auto add = [&](ActivityCell& cell) {
    int open = cell.open();
    // A silent WebSocket is open, but nothing happens on it.
    if (open > cell.sockets_.load(std::memory_order_acquire)) cell.Touch(now);
    if (!cell.changed_.exchange(false, std::memory_order_acquire)) return;
    torpor::v1::Activity* activity = request.add_activities();
    activity->set_actor_uid(cell.uid_);
    activity->set_generation(cell.generation_);
    WallTime last{WallTime::duration(cell.last_active_.load(std::memory_order_relaxed))};
    *activity->mutable_last_active_time() = ToProto(last);
    activity->set_open_streams(open);
  };
  for (auto it = cells_.begin(); it != cells_.end();) {
    ActivityCell& cell = *it->second;
    add(cell);
    WallTime last{WallTime::duration(cell.last_active_.load(std::memory_order_relaxed))};
    bool forget = cell.open() == 0 && it->second.use_count() == 1 && now - last > kForgetAfter;
    it = forget ? cells_.erase(it) : std::next(it);
  }
  std::erase_if(older_, [](const auto& cell) { return cell->open() == 0; });
  for (const auto& cell : older_) add(*cell);
  return request;
}

}  // namespace torpor::router
