#pragma once
// For programs that run inside a sandbox and are built into the worker: no C library, two system
// calls, an entry point.

namespace torpor::guest {

#if defined(__x86_64__)
inline long SystemCall(long number, long a, long b, long c) {
  long result;
  asm volatile("syscall"
               : "=a"(result)
               : "a"(number), "D"(a), "S"(b), "d"(c)
               : "rcx", "r11", "memory");
  return result;
}
inline constexpr long kWrite = 1, kNanosleep = 35;
#elif defined(__aarch64__)
inline long SystemCall(long number, long a, long b, long c) {
  register long x8 asm("x8") = number;
  register long x0 asm("x0") = a;
  register long x1 asm("x1") = b;
  register long x2 asm("x2") = c;
  asm volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2) : "memory");
  return x0;
}
inline constexpr long kWrite = 64, kNanosleep = 101;
#else
#error "no sandboxes on this architecture"
#endif

inline void Sleep(long seconds, long nanoseconds) {
  long time[2] = {seconds, nanoseconds};
  SystemCall(kNanosleep, reinterpret_cast<long>(time), 0, 0);
}

}  // namespace torpor::guest

// The kernel enters here without a return address on the stack, hence the alignment by hand.
#if defined(__x86_64__)
#define TORPOR_GUEST_ENTRY gnu::force_align_arg_pointer, noreturn
#else
#define TORPOR_GUEST_ENTRY noreturn
#endif
