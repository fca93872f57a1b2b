#pragma once
// The user's verbs: `torpor get actors`, `torpor pause counter-1` ...
//
// Everything goes through the public API or Ops; there is no back door. Single-threaded but for the
// callbacks of gRPC, which Client hides.

#include <string>
#include <vector>

namespace torpor::cli {

// `args` are the words after the program's name. Returns the exit code: 0 done, 1 other failure,
// 2 wrong usage, 4 not found, 5 conflict or wrong state, 6 unavailable or timed out, 7 denied.
int Main(const std::vector<std::string>& args);
// Whether `args` are a verb of this module rather than the role of that name: `node drain`.
bool IsNodeVerb(const std::vector<std::string>& args);

}  // namespace torpor::cli
