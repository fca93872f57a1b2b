#include "control/watch.h"

#include <algorithm>

#include "control/core/record_view.h"
#include "model/reasons.h"

namespace torpor::control {

using torpor::v1::WatchActorsResponse;

ActorWatch::ActorWatch(const State* state, Show show, const torpor::v1::WatchActorsRequest& request)
    : prefix_(request.atespace().empty() ? "" : request.atespace() + "/"),
      show_(std::move(show)),
      state_(state) {
  for (const ateapi::ObjectRef& ref : request.actors()) keys_.insert(core::Key(ref));
}

bool ActorWatch::Matches(const std::string& key) const {
  return key.compare(0, prefix_.size(), prefix_) == 0 && (keys_.empty() || keys_.count(key) != 0);
}

void ActorWatch::Changed(const std::string& key) {
  if (!Matches(key)) return;
  {
    MutexLock lock(&mu_);
    if (state_ == nullptr || !queued_.insert(key).second) return;
    queue_.push_back(key);
  }
  Answer();
}

void ActorWatch::Bookmark() {
  {
    MutexLock lock(&mu_);
    bookmark_ = true;
  }
  Answer();
}

bool ActorWatch::Take(WatchActorsResponse& message) {
  while (!queue_.empty()) {
    const std::string key = queue_.front();
    if (key.empty()) {
      queue_.pop_front();
      message.set_kind(WatchActorsResponse::KIND_SYNCED);
      return true;
    }
    auto record = state_->Find<torpor::v1::ActorRecord>(key);
    auto seen = seen_.find(key);
    const bool replaced = seen != seen_.end() && record != nullptr &&
                          seen->second.uid != record->actor().metadata().uid();
    if (seen != seen_.end() && (record == nullptr || replaced)) {
      // What took its name stays at the front of the queue.
      if (!replaced) {
        queue_.pop_front();
        queued_.erase(key);
      }
      message.set_kind(WatchActorsResponse::KIND_DELETED);
      *message.mutable_actor() = std::move(seen->second.last);
      seen_.erase(seen);
      return true;
    }
    queue_.pop_front();
    queued_.erase(key);
    if (record == nullptr) continue;  // came and went unseen
    const ateapi::ResourceMetadata& metadata = record->actor().metadata();
    if (seen != seen_.end() && seen->second.version >= metadata.version()) continue;
    message.set_kind(seen == seen_.end() ? WatchActorsResponse::KIND_ADDED
                                         : WatchActorsResponse::KIND_MODIFIED);
    *message.mutable_actor() = show_(*record);
    seen_[key] = Seen{metadata.uid(), metadata.version(), message.actor()};
    return true;
  }
  if (!bookmark_) return false;
  bookmark_ = false;
  message.set_kind(WatchActorsResponse::KIND_BOOKMARK);
  return true;
}

void ActorWatch::Next(Done<WatchActorsResponse> done) {
  {
    MutexLock lock(&mu_);
    waiting_ = std::move(done);
  }
  Answer();
}

void ActorWatch::Answer() {
  Done<WatchActorsResponse> done;
  StatusOr<WatchActorsResponse> answer = WatchActorsResponse();
  {
    MutexLock lock(&mu_);
    if (waiting_ == nullptr) return;
    if (!ended_.ok()) {
      answer = ended_;
    } else if (!Take(*answer)) {
      return;
    }
    done = std::exchange(waiting_, nullptr);
  }
  done(std::move(answer));
}

void ActorWatch::End(const Status& status) {
  {
    MutexLock lock(&mu_);
    if (state_ == nullptr) return;
    state_ = nullptr;
    ended_ = status;
  }
  Answer();
}

void ActorWatch::Stop() { End(Fail(reasons::kCancelled, "the reader has left")); }

WatchHub::~WatchHub() {
  for (const auto& watch : Live()) {
    watch->End(Fail(reasons::kShuttingDown, "the control plane is stopping; watch again"));
  }
}

StatusOr<std::shared_ptr<ActorWatch>> WatchHub::Open(const torpor::v1::WatchActorsRequest& request,
                                                     ActorWatch::Show show, size_t max) {
  auto watch = std::make_shared<ActorWatch>(state_, std::move(show), request);
  if (Live().size() >= max) {
    return Fail(reasons::kTooManyStreams, fmt::format("{} streams are open already", max));
  }
  {
    // First in the list, so that no change falls between the two.
    MutexLock lock(&mu_);
    watches_.push_back(watch);
  }
  std::vector<std::string> keys;
  {
    MutexLock lock(&state_->mu);
    for (const auto& [key, entry] : state_->table<torpor::v1::ActorRecord>()) {
      if (watch->Matches(key)) keys.push_back(key);
    }
  }
  MutexLock lock(&watch->mu_);
  for (std::string& key : keys) {
    if (watch->queued_.insert(key).second) watch->queue_.push_back(std::move(key));
  }
  watch->queue_.push_back("");
  return watch;
}

std::vector<std::shared_ptr<ActorWatch>> WatchHub::Live() {
  std::vector<std::shared_ptr<ActorWatch>> live;
  MutexLock lock(&mu_);
  std::erase_if(watches_, [&](const std::weak_ptr<ActorWatch>& weak) {
    auto watch = weak.lock();
    if (watch == nullptr) return true;
    MutexLock watch_lock(&watch->mu_);
    if (watch->state_ == nullptr) return true;
    live.push_back(std::move(watch));
    return false;
  });
  return live;
}

void WatchHub::Changed(const std::vector<std::string>& keys) {
  for (const auto& watch : Live()) {
    for (const std::string& key : keys) watch->Changed(key);
  }
}

void WatchHub::Bookmark() {
  for (const auto& watch : Live()) watch->Bookmark();
}

bool WatchHub::empty() { return Live().empty(); }

}  // namespace torpor::control
