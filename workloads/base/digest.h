#pragma once

// SHA-256 (FIPS 180-4), SHA-1 and base64, without a crypto library, so that the static binaries
// stay small. SHA-256 uses the CPU's SHA instructions where they exist: digests of benchmark files
// must not cost more than reading them. SHA-1 serves only the WebSocket handshake (RFC 6455).
// Objects are not thread-safe; functions are.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace torpor::workloads {

class Sha256 {
 public:
  using Digest = std::array<unsigned char, 32>;

  Sha256();

  void Update(const void* data, size_t size);

  // Ends the computation; the object must not be used again.
  Digest Finish();

  static Digest Of(std::string_view data);

  // The portable and the accelerated rounds, exposed so that a test can compare them.
  static void CompressPortable(uint32_t state[8], const unsigned char* blocks, size_t count);
  static void Compress(uint32_t state[8], const unsigned char* blocks, size_t count);

 private:
  uint32_t state_[8];
  uint64_t total_ = 0;
  unsigned char pending_[64];
  size_t pending_size_ = 0;
};

std::array<unsigned char, 20> Sha1(std::string_view data);

std::string Base64(const void* data, size_t size);

}  // namespace torpor::workloads
