#pragma once
// The lines that a worker's door and a router write to each other: one DoorLine as JSON, ended by
// LF. Pure functions, any thread.

#include <cstddef>
#include <string>
#include <string_view>

#include "base/status.h"
#include "torpor/v1/door.pb.h"

namespace torpor {

// Longer lines are refused, with or without their end.
inline constexpr size_t kDoorLineBytesMax = 1024;

// With the LF.
std::string FormatDoorLine(const torpor::v1::DoorLine& line);

// `text` comes without its LF. INVALID_ARGUMENT unless it says exactly one thing about one
// activation: a uuid and a generation above 0, no count below 0, no unknown name.
StatusOr<torpor::v1::DoorLine> ParseDoorLine(std::string_view text);

}  // namespace torpor
