#pragma once
// Lifecycle calls with progress, for the verbs and for `run`.

#include "cli/session.h"

namespace torpor::cli {

StatusOr<ateapi::Actor> ResumeActor(Session& session, const ateapi::ObjectRef& actor);
// One line: state, generation, where the state is and what it survives. Pure.
std::string DrawState(const ateapi::Actor& actor);
// What the actor's open operation does right now: "RESTORE of generation 3 on node n1".
std::string ProgressOf(Session& session, const ateapi::ObjectRef& actor);

}  // namespace torpor::cli
