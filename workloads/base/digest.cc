#include "workloads/base/digest.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace torpor::workloads {
namespace {

alignas(16) constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

uint32_t LoadBig32(const unsigned char* p) {
  uint32_t value;
  std::memcpy(&value, p, sizeof(value));
  return __builtin_bswap32(value);
}

void StoreBig32(unsigned char* p, uint32_t value) {
  value = __builtin_bswap32(value);
  std::memcpy(p, &value, sizeof(value));
}

#if defined(__x86_64__)
bool HaveShaInstructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid(1, &a, &b, &c, &d) || (c & bit_SSE4_1) == 0 || (c & bit_SSSE3) == 0)
    return false;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) && (b & bit_SHA) != 0;
}

// The instructions keep the state as ABEF and CDGH and do four rounds per message vector.
__attribute__((target("sha,sse4.1,ssse3"))) void CompressSha(uint32_t state[8],
                                                             const unsigned char* blocks,
                                                             size_t count) {
  const __m128i swap = _mm_set_epi64x(0x0c0d0e0f08090a0bLL, 0x0405060700010203LL);
  const __m128i dcba = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state));
  const __m128i hgfe = _mm_loadu_si128(reinterpret_cast<const __m128i*>(state + 4));
  const __m128i cdab = _mm_shuffle_epi32(dcba, 0xb1);
  const __m128i efgh = _mm_shuffle_epi32(hgfe, 0x1b);
  __m128i abef = _mm_alignr_epi8(cdab, efgh, 8);
  __m128i cdgh = _mm_blend_epi16(efgh, cdab, 0xf0);
  for (; count > 0; --count, blocks += 64) {
    const __m128i abef_before = abef;
    const __m128i cdgh_before = cdgh;
    __m128i w[4];
    for (int i = 0; i < 4; ++i) {
      const auto* p = reinterpret_cast<const __m128i*>(blocks + 16 * i);
      w[i] = _mm_shuffle_epi8(_mm_loadu_si128(p), swap);
    }
#pragma GCC unroll 16
    for (int i = 0; i < 16; ++i) {
      __m128i words = w[i % 4];
      const __m128i k = _mm_load_si128(reinterpret_cast<const __m128i*>(kRound + 4 * i));
      const __m128i sum = _mm_add_epi32(words, k);
      cdgh = _mm_sha256rnds2_epu32(cdgh, abef, sum);
      abef = _mm_sha256rnds2_epu32(abef, cdgh, _mm_shuffle_epi32(sum, 0x0e));
      if (i < 12) {
        // w[i] becomes the message vector that is needed four steps later.
        words = _mm_sha256msg1_epu32(words, w[(i + 1) % 4]);
        words = _mm_add_epi32(words, _mm_alignr_epi8(w[(i + 3) % 4], w[(i + 2) % 4], 4));
        w[i % 4] = _mm_sha256msg2_epu32(words, w[(i + 3) % 4]);
      }
    }
    abef = _mm_add_epi32(abef, abef_before);
    cdgh = _mm_add_epi32(cdgh, cdgh_before);
  }
  const __m128i feba = _mm_shuffle_epi32(abef, 0x1b);
  const __m128i dchg = _mm_shuffle_epi32(cdgh, 0xb1);
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state), _mm_blend_epi16(feba, dchg, 0xf0));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(state + 4), _mm_alignr_epi8(dchg, feba, 8));
}
#endif

}  // namespace

void Sha256::CompressPortable(uint32_t state[8], const unsigned char* blocks, size_t count) {
  for (; count > 0; --count, blocks += 64) {
    uint32_t w[64];
    for (int i = 0; i < 16; ++i) w[i] = LoadBig32(blocks + 4 * i);
    for (int i = 16; i < 64; ++i) {
      const uint32_t x = w[i - 15];
      const uint32_t y = w[i - 2];
      const uint32_t s0 = std::rotr(x, 7) ^ std::rotr(x, 18) ^ (x >> 3);
      const uint32_t s1 = std::rotr(y, 17) ^ std::rotr(y, 19) ^ (y >> 10);
      w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    uint32_t s[8];
    std::copy(state, state + 8, s);
    for (int i = 0; i < 64; ++i) {
      const uint32_t e = s[4];
      const uint32_t a = s[0];
      const uint32_t t1 = s[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                          ((e & s[5]) ^ (~e & s[6])) + kRound[i] + w[i];
      const uint32_t t2 = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                          ((a & s[1]) ^ (a & s[2]) ^ (s[1] & s[2]));
      std::copy_backward(s, s + 7, s + 8);
      s[4] += t1;
      s[0] = t1 + t2;
    }
    for (int i = 0; i < 8; ++i) state[i] += s[i];
  }
}

void Sha256::Compress(uint32_t state[8], const unsigned char* blocks, size_t count) {
#if defined(__x86_64__)
  static const bool have_sha = HaveShaInstructions();
  if (have_sha) return CompressSha(state, blocks, count);
#endif
  CompressPortable(state, blocks, count);
}

Sha256::Sha256()
    : state_{0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
             0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19} {}

void Sha256::Update(const void* data, size_t size) {
  const auto* bytes = static_cast<const unsigned char*>(data);
  total_ += size;
  if (pending_size_ > 0) {
    const size_t take = std::min(size, sizeof(pending_) - pending_size_);
    std::copy(bytes, bytes + take, pending_ + pending_size_);
    pending_size_ += take;
    bytes += take;
    size -= take;
    if (pending_size_ < sizeof(pending_)) return;
    Compress(state_, pending_, 1);
    pending_size_ = 0;
  }
  Compress(state_, bytes, size / 64);
  pending_size_ = size % 64;
  std::copy(bytes + size - pending_size_, bytes + size, pending_);
}

Sha256::Digest Sha256::Finish() {
  const uint64_t bits = total_ * 8;
  static constexpr unsigned char kPadding[64] = {0x80};
  const size_t padding = pending_size_ < 56 ? 56 - pending_size_ : 120 - pending_size_;
  Update(kPadding, padding);
  unsigned char length[8];
  StoreBig32(length, static_cast<uint32_t>(bits >> 32));
  StoreBig32(length + 4, static_cast<uint32_t>(bits));
  Update(length, sizeof(length));
  Digest digest;
  for (int i = 0; i < 8; ++i) StoreBig32(digest.data() + 4 * i, state_[i]);
  return digest;
}

Sha256::Digest Sha256::Of(std::string_view data) {
  Sha256 hash;
  hash.Update(data.data(), data.size());
  return hash.Finish();
}

std::array<unsigned char, 20> Sha1(std::string_view data) {
  std::string message(data);
  message.push_back('\x80');
  while (message.size() % 64 != 56) message.push_back('\0');
  const uint64_t bits = static_cast<uint64_t>(data.size()) * 8;
  for (int shift = 56; shift >= 0; shift -= 8) message.push_back(static_cast<char>(bits >> shift));

  uint32_t state[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
  for (size_t block = 0; block < message.size(); block += 64) {
    uint32_t w[80];
    const auto* bytes = reinterpret_cast<const unsigned char*>(message.data()) + block;
    for (int i = 0; i < 16; ++i) w[i] = LoadBig32(bytes + 4 * i);
    for (int i = 16; i < 80; ++i) w[i] = std::rotl(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    uint32_t a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
    for (int i = 0; i < 80; ++i) {
      uint32_t f = b ^ c ^ d;
      uint32_t k = i < 40 ? 0x6ed9eba1 : 0xca62c1d6;
      if (i < 20) {
        f = (b & c) | (~b & d);
        k = 0x5a827999;
      } else if (i >= 40 && i < 60) {
        f = (b & c) | (b & d) | (c & d);
        k = 0x8f1bbcdc;
      }
      const uint32_t next = std::rotl(a, 5) + f + e + k + w[i];
      e = d;
      d = c;
      c = std::rotl(b, 30);
      b = a;
      a = next;
    }
    state[0] += a;
    state[1] += b;
    state[2] += c;
    state[3] += d;
    state[4] += e;
  }
  std::array<unsigned char, 20> digest;
  for (int i = 0; i < 5; ++i) StoreBig32(digest.data() + 4 * i, state[i]);
  return digest;
}

std::string Base64(const void* data, size_t size) {
  static constexpr char kAlphabet[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::string text;
  for (size_t i = 0; i < size; i += 3) {
    const size_t left = size - i;
    const uint32_t group = static_cast<uint32_t>(bytes[i]) << 16 |
                           (left > 1 ? static_cast<uint32_t>(bytes[i + 1]) << 8 : 0) |
                           (left > 2 ? static_cast<uint32_t>(bytes[i + 2]) : 0);
    text.push_back(kAlphabet[group >> 18]);
    text.push_back(kAlphabet[group >> 12 & 63]);
    text.push_back(left > 1 ? kAlphabet[group >> 6 & 63] : '=');
    text.push_back(left > 2 ? kAlphabet[group & 63] : '=');
  }
  return text;
}

}  // namespace torpor::workloads
