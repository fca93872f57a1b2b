#pragma once
// Large page-aligned buffers that are used again: the first touch of new memory costs several times
// as much as copying into memory that is there.
//
// A Buffer belongs to one thread at a time and returns to its pool on destruction. The pool is
// thread-safe and outlives its buffers. It keeps at most kCachedBytesMax, and never so much that
// what is kept and what is reserved exceed the budget together. It does not reserve: whoever takes
// a buffer holds its Rounded size of the budget.

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "base/sync.h"
#include "snapshot/transfer/byte_budget.h"

namespace torpor::snapshot {

class BufferPool;

class Buffer {
 public:
  Buffer() = default;
  Buffer(Buffer&& other) noexcept { *this = std::move(other); }
  Buffer& operator=(Buffer&& other) noexcept;
  ~Buffer() { Reset(); }
  void Reset();

  char* data() const { return data_; }
  int64_t size() const { return size_; }  // as asked for, or a little more; 0 = no buffer
  std::string_view View(int64_t bytes) const { return {data_, static_cast<size_t>(bytes)}; }

 private:
  friend class BufferPool;
  BufferPool* pool_ = nullptr;
  char* data_ = nullptr;
  int64_t size_ = 0;
};

class BufferPool {
 public:
  static constexpr int64_t kCachedBytesMax = 64 << 20;

  explicit BufferPool(const ByteBudget* budget) : budget_(budget) {}
  ~BufferPool();

  Buffer Take(int64_t bytes) EXCLUDES(mu_);
  // What a buffer of `bytes` takes.
  static int64_t Rounded(int64_t bytes);
  int64_t cached_bytes() const EXCLUDES(mu_);

 private:
  friend class Buffer;
  void Return(char* data, int64_t size) EXCLUDES(mu_);

  const ByteBudget* const budget_;
  mutable Mutex mu_;
  std::map<int64_t, std::vector<char*>> cached_ GUARDED_BY(mu_);  // by size
  int64_t cached_bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace torpor::snapshot
