#include "control/core/idle.h"

#include <algorithm>

#include "control/core/record_view.h"

namespace torpor::control::core {
namespace {

// With open streams, or while nobody knows, the clock stands still. A report that changes this
// makes the decision be taken again at once; the look is for a router that never reports again.
constexpr Duration kBusyAgain = std::chrono::seconds(30);

bool IsSet(const google::protobuf::Duration& d) { return FromProto(d) > Duration::zero(); }

}  // namespace

WallTime LastActive(const torpor::v1::ActorRecord& record, const Activity& activity) {
  const ateapi::ActorStatus& status = record.actor().status();
  WallTime last = activity.last_active;
  if (status.has_last_active_time()) last = std::max(last, FromProto(status.last_active_time()));
  return last;
}

IdleDecision DecideIdle(WallTime now, const torpor::v1::ActorRecord& record,
                        const torpor::v1::TemplateRecord* tmpl, const Activity& activity) {
  IdleDecision decision;
  const ateapi::ActorStatus& status = record.actor().status();
  const bool running = status.state() == ateapi::ACTOR_STATE_RUNNING;
  const bool paused = status.state() == ateapi::ACTOR_STATE_PAUSED;
  if ((!running && !paused) || record.has_operation()) return decision;
  const torpor::v1::IdlePolicy policy = EffectiveIdlePolicy(record, tmpl);
  const bool pauses = running && IsSet(policy.pause_after());
  const bool suspends = IsSet(policy.suspend_after());
  if (!pauses && !suspends) return decision;

  WallTime last = LastActive(record, activity);
  if (status.has_awake_until()) last = std::max(last, FromProto(status.awake_until()));
  if (running && (activity.open_streams > 0 || activity.unknown)) {
    decision.next = Later(now, kBusyAgain);
    return decision;
  }
  std::optional<WallTime> pause_at;
  std::optional<WallTime> suspend_at;
  if (pauses) pause_at = Later(last, FromProto(policy.pause_after()));
  if (suspends) suspend_at = Later(last, FromProto(policy.suspend_after()));
  if (suspend_at && *suspend_at <= now) {
    decision.verb = torpor::v1::VERB_SUSPEND;
  } else if (pause_at && *pause_at <= now) {
    decision.verb = torpor::v1::VERB_PAUSE;
  } else {
    decision.next = pause_at && suspend_at ? std::min(*pause_at, *suspend_at)
                                           : (pause_at ? pause_at : suspend_at);
  }
  return decision;
}

}  // namespace torpor::control::core
