#include "agent/housekeeper.h"

#include <pthread.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace torpor::agent {
namespace {

constexpr Duration kTick = std::chrono::seconds(1);

// Of this thread only. Without the right to do so it runs like any other.
void TakeLowestPriority() {
  constexpr int kNicest = 19;
  constexpr int kIoprioWhoProcess = 1;
  constexpr int kIoprioClassIdle = 3 << 13;
  const auto self = static_cast<id_t>(syscall(SYS_gettid));
  (void)setpriority(PRIO_PROCESS, self, kNicest);
  (void)syscall(SYS_ioprio_set, kIoprioWhoProcess, self, kIoprioClassIdle);
}

}  // namespace

bool HousekeepingPlan::MayWork(MonotonicTime now, bool pending,
                               std::optional<MonotonicTime> quiet_since) {
  if (!pending) {
    pending_since_.reset();
    return false;
  }
  if (!pending_since_) pending_since_ = now;
  const bool quiet = quiet_since && now - *quiet_since >= options_.quiet;
  return quiet || now - *pending_since_ >= options_.patience;
}

bool HousekeepingPlan::MustYield(MonotonicTime now) const {
  return !pending_since_ || now - *pending_since_ < options_.patience;
}

bool HousekeepingPlan::TakeGc(MonotonicTime now) {
  if (now < gc_at_) return false;
  gc_at_ = now + options_.gc_period;
  return true;
}

bool HousekeepingPlan::TakeCache(MonotonicTime now) {
  if (now < cache_at_) return false;
  cache_at_ = now + options_.cache_period;
  return true;
}

Housekeeper::Housekeeper(NodeAgent* agent, HousekeeperOptions options, Clock* clock)
    : agent_(agent), clock_(clock), plan_(options, clock->Now()) {
  thread_ = std::thread([this] { Loop(); });
}

void Housekeeper::Stop() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    stopped_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

bool Housekeeper::stopping() const {
  MutexLock lock(&mu_);
  return stopping_;
}

void Housekeeper::Loop() {
  pthread_setname_np(pthread_self(), "housekeeper");
  TakeLowestPriority();
  while (!stopping()) {
    const MonotonicTime now = clock_->Now();
    // Only a registered node can learn what must stay.
    if (!agent_->operations().lease().empty() && plan_.TakeGc(now)) {
      (void)agent_->CollectGarbage().ok();  // it has said why, and the next pass comes
    }
    if (plan_.TakeCache(now)) agent_->TidyCaches();
    if (plan_.MayWork(now, agent_->HasUnfinished(), agent_->operations().quiet_since())) {
      agent_->FinishInBackground([this] {
        return stopping() ||
               (plan_.MustYield(clock_->Now()) && !agent_->operations().quiet_since().has_value());
      });
    }
    MutexLock lock(&mu_);
    if (!stopping_) stopped_.WaitUntil(&mu_, clock_->Now() + kTick);
  }
}

}  // namespace torpor::agent
