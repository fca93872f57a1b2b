#pragma once
// Bytes of .tsz: little-endian numbers, varints, skippable frames of zstd. Pure functions.

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace torpor::snapshot {

inline constexpr uint32_t kTszIndexFrame = 0x184D2A5B;
inline constexpr uint32_t kTszFooterFrame = 0x184D2A5F;
inline constexpr size_t kSkippableHeaderBytes = 8;  // magic, then size of the payload

template <typename T>
void AppendLittleEndian(T value, std::string* out) {
  for (size_t i = 0; i < sizeof value; ++i) out->push_back(static_cast<char>(value >> (8 * i)));
}

// `bytes` has at least sizeof(T) of them.
template <typename T>
T ReadLittleEndian(std::string_view bytes) {
  T value = 0;
  for (size_t i = 0; i < sizeof value; ++i) {
    value |= static_cast<T>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  return value;
}

inline void AppendVarint(uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

// Takes a varint off the front; false when there is none of at most 64 bits.
inline bool TakeVarint(std::string_view* bytes, uint64_t* out) {
  uint64_t value = 0;
  for (size_t i = 0; i < bytes->size() && i < 10; ++i) {
    const auto byte = static_cast<unsigned char>((*bytes)[i]);
    if (i == 9 && byte > 1) return false;
    value |= static_cast<uint64_t>(byte & 0x7f) << (7 * i);
    if (byte < 0x80) {
      bytes->remove_prefix(i + 1);
      *out = value;
      return true;
    }
  }
  return false;
}

inline void AppendSkippableFrame(uint32_t magic, std::string_view payload, std::string* out) {
  AppendLittleEndian<uint32_t>(magic, out);
  AppendLittleEndian<uint32_t>(static_cast<uint32_t>(payload.size()), out);
  out->append(payload);
}

}  // namespace torpor::snapshot
