#pragma once
// The command line of `torpor bench`.

#include <string>
#include <vector>

namespace torpor::bench {

// `args` are the words after `bench`. Exit codes: 0 done, 1 failed or an operation failed, 2 wrong
// usage, 3 an actor's state was lost: the figures are void.
int Main(const std::vector<std::string>& args);

}  // namespace torpor::bench
