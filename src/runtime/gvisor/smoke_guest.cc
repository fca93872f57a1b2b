// The guest of the smoke test: prints 1, 2, 3 ... on standard output, one number every 10 ms.

#include "runtime/gvisor/guest_start.h"

namespace {

volatile unsigned long counter = 0;  // the state that must survive

}  // namespace

extern "C" {
[[TORPOR_GUEST_ENTRY]] void _start() {
  for (;;) {
    counter = counter + 1;
    char text[24];
    char* at = text + sizeof text;
    *--at = '\n';
    for (unsigned long n = counter; n != 0; n /= 10) *--at = static_cast<char>('0' + n % 10);
    torpor::guest::SystemCall(torpor::guest::kWrite, 1, reinterpret_cast<long>(at),
                              text + sizeof text - at);
    torpor::guest::Sleep(0, 10 * 1000 * 1000);
  }
}
}  // extern "C"
