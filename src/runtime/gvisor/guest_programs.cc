#include "runtime/gvisor/guest_programs.h"

// The linker puts the finished programs here; SMOKE_GUEST and PAUSE_GUEST are their paths.
#define EMBED(name, path)                                       \
  asm(".section .rodata\n"                                      \
      ".balign 16\n"                                            \
      ".global " name "_begin\n" name "_begin: .incbin \"" path \
      "\"\n"                                                    \
      ".global " name "_end\n" name                             \
      "_end:\n"                                                 \
      ".previous\n")

EMBED("torpor_smoke_guest", SMOKE_GUEST);
EMBED("torpor_pause_guest", PAUSE_GUEST);

extern "C" const char torpor_smoke_guest_begin[];
extern "C" const char torpor_smoke_guest_end[];
extern "C" const char torpor_pause_guest_begin[];
extern "C" const char torpor_pause_guest_end[];

namespace torpor::gvisor {
namespace {

std::string_view Between(const char* begin, const char* end) {
  return {begin, static_cast<size_t>(end - begin)};
}

}  // namespace

std::string_view SmokeGuest() { return Between(torpor_smoke_guest_begin, torpor_smoke_guest_end); }

std::string_view PauseGuest() { return Between(torpor_pause_guest_begin, torpor_pause_guest_end); }

}  // namespace torpor::gvisor
