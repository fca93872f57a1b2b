// torpor bench: the load driver and the physical limits.

#include "apps/commands.h"
#include "bench/main.h"

namespace torpor {

int BenchCommand(const Args& args) { return bench::Main(args); }

}  // namespace torpor
