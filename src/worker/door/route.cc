#include "worker/door/route.h"

#include <algorithm>

namespace torpor::worker {
namespace {

int64_t WholeMs(Duration d) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}

}  // namespace

Admission Route::Admit(const std::string& router) {
  MutexLock lock(&mu_);
  if (gone_) return Admission::kGone;
  if (draining_) return Admission::kDraining;
  if (connecting_ + static_cast<int>(flows_.size()) >= kConnectionsMax) return Admission::kTooMany;
  ++connecting_;
  if (!router.empty() && routers_.size() < kRoutersMax) routers_[router].id = router;
  return Admission::kAdmitted;
}

void Route::Connected(std::shared_ptr<Flow> flow) {
  MutexLock lock(&mu_);
  --connecting_;
  flows_.insert(std::move(flow));
  changed_.SignalAll();
}

void Route::Closed(const std::shared_ptr<Flow>& flow, bool was_connected) {
  MutexLock lock(&mu_);
  if (was_connected) {
    flows_.erase(flow);
  } else {
    --connecting_;
  }
  changed_.SignalAll();
}

void Route::SetUnanswered(Flow* flow, bool unanswered) {
  flow->unanswered.store(unanswered, std::memory_order_relaxed);
  // Twice per request: only somebody who waits needs to be told.
  if (!draining_) return;
  MutexLock lock(&mu_);
  changed_.SignalAll();
}

int64_t Route::StartDraining(DrainOptions options) {
  MutexLock lock(&mu_);
  options_ = std::move(options);
  for (auto& [id, router] : routers_) router = DrainView::Router{id};
  draining_ = true;
  return ++drain_seq_;
}

void Route::StopDraining() {
  MutexLock lock(&mu_);
  draining_ = false;
}

void Route::MarkGone() {
  MutexLock lock(&mu_);
  gone_ = true;
}

std::optional<torpor::v1::DoorLine> Route::drain_line() const {
  MutexLock lock(&mu_);
  if (!draining_) return std::nullopt;
  torpor::v1::DoorLine line;
  line.mutable_drain()->set_uid(uid);
  line.mutable_drain()->set_gen(generation);
  line.mutable_drain()->set_why(options_.why);
  line.mutable_drain()->set_grace_ms(options_.refuse_if_busy ? 0 : WholeMs(options_.grace));
  line.mutable_drain()->set_seq(drain_seq_);
  return line;
}

std::vector<std::string> Route::routers() const {
  MutexLock lock(&mu_);
  std::vector<std::string> out;
  for (const auto& [id, router] : routers_) out.push_back(id);
  return out;
}

void Route::RouterAsked(const std::string& router, MonotonicTime now) {
  MutexLock lock(&mu_);
  auto it = routers_.find(router);
  if (it == routers_.end()) return;
  it->second.state = DrainView::Router::State::kAsked;
  it->second.asked = now;
}

void Route::RouterAnswered(const std::string& router, int64_t seq, int inflight, int streams) {
  MutexLock lock(&mu_);
  auto it = routers_.find(router);
  if (it == routers_.end() || !draining_ || seq != drain_seq_) return;
  it->second.state = DrainView::Router::State::kAnswered;
  it->second.inflight = inflight;
  it->second.streams = streams;
  changed_.SignalAll();
}

void Route::RouterLost(const std::string& router) {
  MutexLock lock(&mu_);
  auto it = routers_.find(router);
  if (it == routers_.end() || it->second.state == DrainView::Router::State::kUnknown) return;
  it->second.state = DrainView::Router::State::kLost;
  changed_.SignalAll();
}

bool Route::WaitNoneConnecting(MonotonicTime deadline) {
  MutexLock lock(&mu_);
  while (connecting_ > 0) {
    if (!changed_.WaitUntil(&mu_, deadline)) return connecting_ == 0;
  }
  return true;
}

bool Route::WaitEmpty(MonotonicTime deadline) {
  MutexLock lock(&mu_);
  while (connecting_ > 0 || !flows_.empty()) {
    if (!changed_.WaitUntil(&mu_, deadline)) return connecting_ == 0 && flows_.empty();
  }
  return true;
}

DrainView Route::View() const {
  DrainView view;
  for (const auto& [id, router] : routers_) view.routers.push_back(router);
  for (const auto& flow : flows_) {
    view.flows.push_back({flow->router,
                          MonotonicTime(Duration(flow->last_bytes.load(std::memory_order_relaxed))),
                          flow->unanswered.load(std::memory_order_relaxed)});
  }
  return view;
}

bool Route::WaitDrained(Clock* clock, MonotonicTime began) {
  MutexLock lock(&mu_);
  while (true) {
    DrainDecision decision = DecideDrain(View(), options_, began, clock->Now());
    if (decision.kind != DrainDecision::Kind::kWait) {
      return decision.kind == DrainDecision::Kind::kDrained;
    }
    (void)changed_.WaitUntil(&mu_, decision.look_again);
  }
}

Route::Counts Route::counts() const {
  MutexLock lock(&mu_);
  Counts counts{connecting_, static_cast<int>(flows_.size()), 0};
  for (const auto& flow : flows_) counts.unanswered += flow->unanswered ? 1 : 0;
  return counts;
}

}  // namespace torpor::worker
