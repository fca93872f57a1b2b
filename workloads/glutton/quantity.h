#pragma once

// Kubernetes resource quantities as byte counts: "512", "64Mi", "1.5Gi", "2G", "1e6", "100m".

#include <cstdint>
#include <optional>
#include <string_view>

namespace torpor::workloads::glutton {

// Fractions of a byte are rounded up, as Kubernetes does. Nothing for text that is no quantity,
// is negative or does not fit.
std::optional<int64_t> ParseQuantity(std::string_view text);

}  // namespace torpor::workloads::glutton
