#pragma once
// Addresses of objects and prefixes: scheme://bucket/path. Pure functions.
//
// Strict, because locations come from tenants: at most 2048 bytes, a lower-case scheme, no user
// info, port, query, fragment or percent escape, and a path of clean components (IsObjectKey).
// `file:///dir` has an empty bucket. One slash at the end is dropped, so a location is the same
// with and without it. Errors are INVALID_ARGUMENT FIELD_INVALID and show nothing that may be a
// secret.

#include <string>
#include <string_view>

#include "base/status.h"

namespace torpor::objstore {

inline constexpr size_t kUriBytesMax = 2048;

struct Uri {
  std::string scheme;  // "file"
  std::string bucket;  // "" for file
  std::string path;    // "var/lib/torpor/store", without slashes at its ends; may be empty
  std::string ToString() const;
  bool operator==(const Uri&) const = default;
};

StatusOr<Uri> ParseUri(std::string_view text);
// True when `inner` is `outer` or lies below it, by whole components.
bool IsAtOrBelow(const Uri& inner, const Uri& outer);

}  // namespace torpor::objstore
