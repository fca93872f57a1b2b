#pragma once
// Files of keys: sections of `name = value` lines, as the AWS tools and boto write them. Pure.

#include <map>
#include <string>
#include <string_view>

#include "base/status.h"

namespace torpor::objstore {

inline constexpr size_t kKeyFileBytesMax = 64 << 10;

using KeyFile = std::map<std::string, std::map<std::string, std::string>>;  // by section, by name
KeyFile ParseKeyFile(std::string_view text);
// NOT_FOUND when there is no such file; messages name it and hold nothing of it.
StatusOr<std::string> ReadFileOfKeys(const std::string& path);

}  // namespace torpor::objstore
