#pragma once

// Named arrays of memory. Arrays are mappings of their own, so that their pages are not shared
// with the allocator, and a failed mapping is an error, not the end of the process. All functions
// are thread-safe; calls for one key wait for each other, calls for different keys do not.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "workloads/base/fast_random.h"
#include "workloads/glutton/status.h"

namespace torpor::workloads::glutton {

enum class RamMode { kTruncate, kOverwrite, kRotate };

class Ram {
 public:
  // `limit_bytes` bounds the sum of all arrays.
  explicit Ram(uint64_t limit_bytes) : limit_bytes_(limit_bytes) {}

  // Fills memory; sets `cursor` to where the next rotating write will begin.
  Status Write(const std::string& key, uint64_t size, RamMode mode, FillKind kind,
               uint64_t* cursor);

  // XOR of the first byte of each 4 KiB page of the first `size` bytes (clamped; nothing = all).
  Status Read(const std::string& key, std::optional<uint64_t> size, uint64_t* bytes_read,
              uint32_t* checksum);

  uint64_t TotalBytes() const;

 private:
  struct Array {
    ~Array();

    std::mutex mu;
    // Guarded by mu.
    unsigned char* data = nullptr;
    uint64_t size = 0;
    uint64_t cursor = 0;
  };

  std::shared_ptr<Array> Find(const std::string& key, bool create);
  Status Resize(Array* array, uint64_t size);

  const uint64_t limit_bytes_;
  mutable std::mutex mu_;
  // Guarded by mu_.
  std::map<std::string, std::shared_ptr<Array>> arrays_;
  uint64_t total_bytes_ = 0;
};

}  // namespace torpor::workloads::glutton
