#pragma once
// Printing events, for `get events` and `events`.

#include <string>

#include "cli/session.h"

namespace torpor::cli {

// Newest last, as one reads a log. An empty `actor` means all of the atespace (-A: of all). With
// `watch` it goes on with what comes, until Ctrl-C; in JSON then one object per line.
Status PrintEvents(Session& session, const std::string& actor, bool watch);

}  // namespace torpor::cli
