// Who uses which actor: what the routers report, what actors wish, and what follows for the idle
// policy. Nothing of it is stored but the time until which an actor stays awake.

#include <algorithm>

#include "base/log.h"
#include "control/core/record_view.h"
#include "control/reconciler/writer.h"
#include "model/reasons.h"

namespace torpor::control {
namespace {

constexpr Duration kKeepAwakeDefault = std::chrono::hours(1);

}  // namespace

void Writer::ReportActivity(const torpor::v1::ReportActivityRequest& request) {
  const MonotonicTime now = parts_.clock->Now();
  std::vector<std::string> changed;  // uids whose clock may have begun to run
  {
    MutexLock lock(&mu_);
    Router& router = routers_[request.router_id()];
    // Its return says how things are; a router without a name never promised to report.
    if (router.open.empty() || now - router.heard <= settings_.router_silent_after) {
    } else {
      for (const auto& [uid, open] : router.open) changed.push_back(uid);
    }
    router.heard = now;
  }
  for (const torpor::v1::Activity& report : request.activities()) {
    auto record = state_.Find<torpor::v1::ActorRecord>(state_.ActorKeyOf(report.actor_uid()));
    if (record == nullptr) continue;
    MutexLock lock(&mu_);
    WallTime& last = active_[report.actor_uid()];
    last = std::max(last, FromProto(report.last_active_time()));
    // Connections of an earlier activation are about to be closed.
    if (report.generation() != 0 && report.generation() < record->active_generation()) continue;
    int& open = routers_[request.router_id()].open[report.actor_uid()];
    if (open > 0 && report.open_streams() <= 0) changed.push_back(report.actor_uid());
    open = std::max(0, report.open_streams());
  }
  if (changed.empty()) return;
  inbox_->Post([this, changed](Txn& txn) {
    for (const std::string& uid : changed) {
      if (std::string key = state_.ActorKeyOf(uid); !key.empty()) ArmActor(txn, key);
    }
  });
}

void Writer::Touch(const std::string& actor_uid) {
  const WallTime now = parts_.clock->WallNow();
  MutexLock lock(&mu_);
  WallTime& last = active_[actor_uid];
  last = std::max(last, now);
}

core::Activity Writer::ActivityOf(const std::string& actor_uid) const {
  const MonotonicTime now = parts_.clock->Now();
  core::Activity activity;
  MutexLock lock(&mu_);
  if (auto it = active_.find(actor_uid); it != active_.end()) activity.last_active = it->second;
  for (const auto& [id, router] : routers_) {
    auto it = router.open.find(actor_uid);
    if (it == router.open.end()) continue;
    const Duration silence = now - router.heard;
    if (silence > settings_.router_gone_after) continue;
    activity.open_streams += it->second;
    activity.unknown |= !id.empty() && silence > settings_.router_silent_after;
  }
  return activity;
}

void Writer::ForgetActivity(const std::string& actor_uid, bool removed) {
  MutexLock lock(&mu_);
  if (removed) active_.erase(actor_uid);
  for (auto& [id, router] : routers_) router.open.erase(actor_uid);
}

void Writer::ForgetRouters() {
  const MonotonicTime now = parts_.clock->Now();
  MutexLock lock(&mu_);
  std::erase_if(routers_, [&](const auto& entry) {
    return now - entry.second.heard > settings_.router_gone_after;
  });
}

void Writer::FoldActivity(torpor::v1::ActorRecord& record) const {
  core::Activity activity = ActivityOf(record.actor().metadata().uid());
  if (activity.last_active == WallTime{}) return;
  *record.mutable_actor()->mutable_status()->mutable_last_active_time() =
      ToProto(core::LastActive(record, activity));
}

bool Writer::IsUsedSince(const torpor::v1::ActorRecord& record, WallTime stamp) const {
  const core::Activity activity = ActivityOf(record.actor().metadata().uid());
  return activity.open_streams > 0 || activity.last_active > stamp;
}

Status Writer::Wish(Txn& txn, const torpor::v1::IdleWish& wish) {
  const std::string key = state_.ActorKeyOf(wish.actor_uid());
  auto actor = txn.Get<torpor::v1::ActorRecord>(key);
  // A wish of an earlier activation, or in another state, is no wish any more.
  if (actor == nullptr || actor->active_generation() != wish.generation() ||
      actor->actor().status().state() != ateapi::ACTOR_STATE_RUNNING) {
    return OkStatus();
  }
  core::StartVerb start;
  start.verb =
      wish.verb() == torpor::v1::VERB_SUSPEND ? torpor::v1::VERB_SUSPEND : torpor::v1::VERB_PAUSE;
  start.trigger = "idle";
  Status status = StepActor(txn, key, start);
  if (!status.ok()) LogInfo("idle wish refused", {{"actor", key}, {"why", status.ToString()}});
  return OkStatus();
}

Status Writer::Wish(Txn& txn, const torpor::v1::AwakeWish& wish) {
  const std::string key = state_.ActorKeyOf(wish.actor_uid());
  auto actor = txn.Get<torpor::v1::ActorRecord>(key);
  if (actor == nullptr || actor->active_generation() != wish.generation() ||
      actor->actor().status().state() != ateapi::ACTOR_STATE_RUNNING) {
    return OkStatus();
  }
  KeepAwake(txn, key, FromProto(wish.duration()));
  return OkStatus();
}

WallTime Writer::KeepAwake(Txn& txn, const std::string& key, Duration duration) {
  torpor::v1::ActorRecord record = *txn.Get<torpor::v1::ActorRecord>(key);
  auto tmpl = txn.Get<torpor::v1::TemplateRecord>(core::Key(record.actor().actor_template()));
  torpor::v1::IdlePolicy policy = core::EffectiveIdlePolicy(record, tmpl.get());
  const Duration most =
      policy.has_max_keep_awake() ? FromProto(policy.max_keep_awake()) : kKeepAwakeDefault;
  const Duration bounded = std::clamp<Duration>(duration, Duration::zero(), most);
  const WallTime until = core::Later(txn.now(), bounded);
  *record.mutable_actor()->mutable_status()->mutable_awake_until() = ToProto(until);
  txn.Put(key, std::move(record));
  touched_.insert(key);
  ArmActor(txn, key);
  return until;
}

}  // namespace torpor::control
