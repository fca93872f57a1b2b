#include "bench/build_info.h"

namespace torpor::bench {

const char* BuildFlags() { return BENCH_BUILD_FLAGS; }
const char* BuildSanitizer() { return BENCH_BUILD_SANITIZER; }

}  // namespace torpor::bench
