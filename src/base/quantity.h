#pragma once
// Kubernetes quantities: a decimal number with an optional suffix n u m k M G T P E, Ki Mi Gi Ti Pi
// Ei, or an exponent.

#include <cstdint>
#include <string>
#include <string_view>

#include "base/status.h"

namespace torpor {

// In thousandths, rounded up ("250m" -> 250, "1" -> 1000). INVALID_ARGUMENT unless > 0 and < 2^63.
StatusOr<int64_t> ParseMilli(std::string_view quantity);
// Whole units, rounded up ("512Mi" -> 536870912).
StatusOr<int64_t> ParseBytes(std::string_view quantity);
// "512Mi", "1.5Gi", "700" ; for people.
std::string FormatBytes(int64_t bytes);

}  // namespace torpor
