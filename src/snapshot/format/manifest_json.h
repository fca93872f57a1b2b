#pragma once
// The JSON of a manifest: syntax and types only; manifest.cc checks what the values mean.

#include <string>
#include <string_view>

#include "base/status.h"
#include "snapshot/format/manifest.h"

namespace torpor::snapshot {

// DATA_LOSS SNAPSHOT_CORRUPT for bad JSON, a wrong type, an unknown or missing key, another format.
StatusOr<Manifest> ManifestFromJson(std::string_view json);
// Keys in alphabetic order, two spaces, a newline at the end.
std::string ManifestToJson(const Manifest& manifest);

}  // namespace torpor::snapshot
