#include "worker/freeze/freeze.h"

#include <algorithm>

#include "base/log.h"

namespace torpor::worker {

Status FreezableGuest::Thaw() {
  if (!frozen_) return OkStatus();
  RETURN_IF_ERROR(cgroups_->Freeze(leaf_, false));
  frozen_ = false;
  return OkStatus();
}

Status FreezableGuest::Touch() {
  MutexLock lock(&mu_);
  last_touch_ = clock_->Now();
  return Thaw();
}

Status FreezableGuest::Hold() {
  MutexLock lock(&mu_);
  ++held_;
  return Thaw();
}

void FreezableGuest::Release() {
  MutexLock lock(&mu_);
  --held_;
}

void FreezableGuest::FreezeUnlessUsed(MonotonicTime untouched_since,
                                      const std::function<bool()>& busy) {
  MutexLock lock(&mu_);
  if (frozen_ || impossible_ || held_ > 0 || last_touch_ > untouched_since || busy()) return;
  Status status = cgroups_->Freeze(leaf_, true);
  impossible_ = status.code() == Code::kFailedPrecondition;  // this machine has no freezer
  // Half frozen counts as frozen, so that the next connection thaws it.
  frozen_ = !impossible_;
  if (status.ok()) return;
  LogWarning("guest not frozen", {{"leaf", leaf_}, {"error", status.ToString()}});
  if (Status thawed = Thaw(); !thawed.ok()) {
    LogError("guest not thawed", {{"leaf", leaf_}, {"error", thawed.ToString()}});
  }
}

MonotonicTime FreezableGuest::last_touch() const {
  MutexLock lock(&mu_);
  return last_touch_;
}

bool FreezableGuest::frozen() const {
  MutexLock lock(&mu_);
  return frozen_;
}

IdleFreezer::~IdleFreezer() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  if (thread_.joinable()) thread_.join();
}

void IdleFreezer::Start() {
  thread_ = std::thread([this] { Run(); });
}

void IdleFreezer::Add(const std::string& uid, std::shared_ptr<FreezableGuest> guest, Duration after,
                      std::function<bool()> busy) {
  MutexLock lock(&mu_);
  MonotonicTime now = clock_->Now();
  guests_[uid] = {std::move(guest), after, std::move(busy), now, now + after};
  changed_.SignalAll();
}

void IdleFreezer::Remove(const std::string& uid) {
  MutexLock lock(&mu_);
  guests_.erase(uid);
}

void IdleFreezer::LookAt(Guest& guest, MonotonicTime now) {
  if (guest.busy() || guest.guest->last_touch() > guest.idle_since) {
    guest.idle_since = now;
  } else if (now - guest.idle_since >= guest.after) {
    guest.guest->FreezeUnlessUsed(guest.idle_since, guest.busy);
  }
  guest.next_look = std::max(guest.idle_since, now) + guest.after;
}

MonotonicTime IdleFreezer::Look() {
  MutexLock lock(&mu_);
  MonotonicTime now = clock_->Now();
  MonotonicTime next = MonotonicTime::max();
  for (auto& [uid, guest] : guests_) {
    if (now >= guest.next_look) LookAt(guest, now);
    next = std::min(next, guest.next_look);
  }
  return next;
}

void IdleFreezer::Run() {
  while (true) {
    MonotonicTime next = Look();
    MutexLock lock(&mu_);
    if (stopping_) return;
    if (next == MonotonicTime::max()) {
      changed_.Wait(&mu_);
    } else {
      (void)changed_.WaitUntil(&mu_, next);
    }
    if (stopping_) return;
  }
}

}  // namespace torpor::worker
