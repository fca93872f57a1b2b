#include "workloads/base/fast_random.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "workloads/base/io.h"

namespace torpor::workloads {
namespace {

constexpr size_t kPage = 4096;

// Letters about as frequent as in English text, so that compressors find what they find in text.
constexpr char kLetters[65] = "eeeeeettttaaaaaooooiiiinnnnsssshhhrrrddllluuccmmwffggyppbbvk    ";

uint64_t Step(uint64_t s[4]) {
  const uint64_t result = std::rotl(s[0] + s[3], 23) + s[0];
  const uint64_t t = s[1] << 17;
  s[2] ^= s[0];
  s[3] ^= s[1];
  s[1] ^= s[2];
  s[0] ^= s[3];
  s[2] ^= t;
  s[3] = std::rotl(s[3], 45);
  return result;
}

}  // namespace

FastRandom::FastRandom() { KernelRandom(state_, sizeof(state_)); }

uint64_t FastRandom::Next() { return Step(state_); }

void FastRandom::Fill(FillKind kind, void* data, size_t size) {
  auto* bytes = static_cast<unsigned char*>(data);
  if (kind == FillKind::kRandom) return FillRandom(bytes, size);
  for (size_t done = 0; done < size; done += kPage) {
    const size_t piece = std::min(kPage, size - done);
    if (kind == FillKind::kHeap) {
      FillHeap(bytes + done, piece);
    } else if (Next() % 5 < 2) {
      std::memset(bytes + done, 0, piece);
    } else {
      FillText(bytes + done, piece);
    }
  }
}

void FastRandom::FillRandom(unsigned char* data, size_t size) {
  // A local copy of the state stays in registers; through `this` every step would store it.
  uint64_t s[4] = {state_[0], state_[1], state_[2], state_[3]};
  size_t done = 0;
  for (; done + 8 <= size; done += 8) {
    const uint64_t word = Step(s);
    std::memcpy(data + done, &word, 8);
  }
  const uint64_t word = Step(s);
  std::memcpy(data + done, &word, size - done);
  std::copy(s, s + 4, state_);
}

void FastRandom::FillText(unsigned char* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    uint64_t bits = Next();
    for (int i = 0; i < 10 && done < size; ++i, bits >>= 6) {
      data[done++] = static_cast<unsigned char>(kLetters[bits & 63]);
    }
  }
}

void FastRandom::FillHeap(unsigned char* data, size_t size) {
  // Objects of one page point into one megabyte, as an interpreter's pools do.
  const uint64_t pool = 0x00007f0000000000 | (Next() & 0x3ff) << 20;
  size_t done = 0;
  for (; done + 8 <= size; done += 8) {
    const uint64_t bits = Next();
    const uint64_t choice = bits >> 60;
    uint64_t word = 0;  // 5 of 16
    if (choice < 5)
      word = pool | (bits & 0xffff0);  // pointer
    else if (choice < 8)
      word = bits & 0xff;  // small number or reference count
    else if (choice < 9)
      word = bits;  // hash
    else if (choice < 11) {
      FillText(data + done, 8);
      continue;
    }
    std::memcpy(data + done, &word, 8);
  }
  std::memset(data + done, 0, size - done);
}

}  // namespace torpor::workloads
