#pragma once
// The idle policy: what an actor that nobody uses should do, and when to look again. Pure.

#include <optional>

#include "base/time.h"
#include "torpor/v1/record.pb.h"

namespace torpor::control::core {

// What the routers reported last; not stored.
struct Activity {
  WallTime last_active{};  // request or answer seen
  int open_streams = 0;    // > 0: active now
  bool unknown = false;    // a router that served the actor is silent: the clock stands still
};

struct IdleDecision {
  torpor::v1::Verb verb = torpor::v1::VERB_UNSPECIFIED;  // PAUSE, SUSPEND, or unset: nothing now
  std::optional<WallTime> next;                          // when to decide again
};

// `activity` may be older than what the record says; the newest counts.
IdleDecision DecideIdle(WallTime now, const torpor::v1::ActorRecord& record,
                        const torpor::v1::TemplateRecord* tmpl, const Activity& activity);

// The newest sign of life that record and routers know.
WallTime LastActive(const torpor::v1::ActorRecord& record, const Activity& activity);

}  // namespace torpor::control::core
