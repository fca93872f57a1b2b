#pragma once
// Bytes for measurements: objects as a managed heap has them, that is pointers into a few regions,
// small numbers, text, noise. The same sequence for the same seed.

#include <cstdint>
#include <cstring>
#include <string>

namespace torpor::snapshot {

class HeapContent {
 public:
  explicit HeapContent(uint64_t seed = 42) : state_(seed) {}

  void Fill(std::string* out) {
    static constexpr char kWords[] = "the request was served by worker and returned status code";
    for (size_t at = 0; at + 64 <= out->size(); at += 64) {
      const uint64_t kind = Next() % 16;
      for (size_t word = 0; word < 8; ++word) {
        uint64_t value = 0;
        if (kind < 6) {
          value = 0x00007f0000000000 | (Next() % 4) << 32 | (Next() & 0xfffff8);
        } else if (kind < 10) {
          value = Next() % 1000;
        } else if (kind < 14) {
          memcpy(&value, kWords + Next() % (sizeof kWords - 9), 8);
        } else {
          value = Next();
        }
        memcpy(out->data() + at + 8 * word, &value, 8);
      }
    }
  }

 private:
  uint64_t Next() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return state_ >> 17;
  }
  uint64_t state_;
};

}  // namespace torpor::snapshot
