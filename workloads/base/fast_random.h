#pragma once

// Fast generators of memory contents. Random bytes come from xoshiro256++ (Blackman and Vigna,
// 2019), seeded with 32 bytes from the kernel for each object: filling gigabytes must not wait for
// the sandbox's random device. Not for secrets. Not thread-safe; make one per call.

#include <cstddef>
#include <cstdint>

namespace torpor::workloads {

enum class FillKind {
  kRandom,  // incompressible
  kHeap,    // like the heap of a script interpreter: pointers, small numbers, zeros, text
  kZero40,  // 40 % of the pages are zero, the rest resembles text
};

class FastRandom {
 public:
  // Seeds from the kernel.
  FastRandom();

  uint64_t Next();

  // Fills `data`; kinds other than kRandom are made in pieces of 4 KiB.
  void Fill(FillKind kind, void* data, size_t size);

 private:
  void FillRandom(unsigned char* data, size_t size);
  void FillText(unsigned char* data, size_t size);
  void FillHeap(unsigned char* data, size_t size);

  uint64_t state_[4];
};

}  // namespace torpor::workloads
