#pragma once
// Tokens of paged lists: where the next page begins, bound to the method and its filters. Pure.

#include <string>
#include <string_view>

#include "base/status.h"

namespace torpor::control {

// `binding` is the method with every filter of the request. At most 256 characters for positions of
// at most 170.
std::string MakePageToken(std::string_view binding, std::string_view position);
// The position; INVALID_ARGUMENT PAGE_TOKEN_INVALID for a damaged token or one of another list. An
// empty token is the beginning: an empty position.
StatusOr<std::string> ReadPageToken(std::string_view binding, std::string_view token);

// 0 = 1000, more than 1000 = 1000; INVALID_ARGUMENT when negative.
StatusOr<int> PageSize(int asked);
// Encoded bytes after which a page ends.
inline constexpr size_t kPageBytesMax = size_t{3} << 20;

}  // namespace torpor::control
