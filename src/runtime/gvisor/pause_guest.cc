// The root container of a sandbox with several containers: sleeps for ever.

#include "runtime/gvisor/guest_start.h"

extern "C" {
[[TORPOR_GUEST_ENTRY]] void _start() {
  for (;;) torpor::guest::Sleep(1000 * 1000 * 1000, 0);
}
}  // extern "C"
