#pragma once
// The golden build of a template: which step comes next, decided anew from what there is each time
// something changes. Pure; the caller carries the action out in the same transaction.
//
// BOOT a golden actor in `ate-golden` -> WARM -> SUSPEND at MEMORY -> TAG (a copy of its snapshot)
// -> DELETE the actor -> DONE with golden_tag. What a retry cannot repair, or what failed too
// often, goes to ABANDON with error_message. Waiting for capacity is no failure.

#include <optional>
#include <string>

#include "base/status.h"
#include "base/time.h"
#include "control/settings.h"
#include "torpor/v1/ops.pb.h"
#include "torpor/v1/record.pb.h"

namespace torpor::control::core {

inline constexpr char kGoldenAtespace[] = "ate-golden";

enum class GoldenAction {
  kNone,
  kCreateActor,
  kResumeActor,
  kSuspendActor,
  kCreateTag,    // and copy the actor's durable snapshot into it
  kDeleteActor,  // in any state
  kDeleteTag,    // the unfinished one of an abandoned build
};

struct GoldenDecision {
  GoldenAction action = GoldenAction::kNone;
  bool dirty = false;            // `record` changed
  std::optional<WallTime> next;  // look again then, even if nothing changes
  std::optional<torpor::v1::Event> event;
};

// `actor` and `tag` are the template's golden ones, null when they do not exist.
GoldenDecision DecideGolden(WallTime now, const Settings& settings,
                            torpor::v1::TemplateRecord& record,
                            const torpor::v1::ActorRecord* actor, const torpor::v1::TagRecord* tag);

// A resume or suspend of the golden actor could not be started, or the copy of its snapshot failed.
void GoldenFailed(WallTime now, torpor::v1::TemplateRecord& record, const Status& error);

// True while the build has not come to its end.
bool IsGoldenOpen(const torpor::v1::TemplateRecord& record);

}  // namespace torpor::control::core
