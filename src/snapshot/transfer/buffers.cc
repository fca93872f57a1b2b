#include "snapshot/transfer/buffers.h"

#include <sys/mman.h>

#include "base/log.h"

namespace torpor::snapshot {
namespace {

constexpr int64_t kPageBytes = 4096;
// Mapped and unmapped by themselves, so that what is given back is back: malloc would keep it.
char* Map(int64_t bytes) {
  void* at = mmap(nullptr, static_cast<size_t>(bytes), PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(at != MAP_FAILED);
  return static_cast<char*>(at);
}

void Unmap(char* data, int64_t bytes) { munmap(data, static_cast<size_t>(bytes)); }

}  // namespace

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  pool_ = std::exchange(other.pool_, nullptr);
  data_ = std::exchange(other.data_, nullptr);
  size_ = std::exchange(other.size_, 0);
  return *this;
}

void Buffer::Reset() {
  if (pool_ == nullptr) return;
  std::exchange(pool_, nullptr)->Return(std::exchange(data_, nullptr), std::exchange(size_, 0));
}

BufferPool::~BufferPool() {
  MutexLock lock(&mu_);
  for (const auto& [size, buffers] : cached_) {
    for (char* data : buffers) Unmap(data, size);
  }
}

int64_t BufferPool::Rounded(int64_t bytes) {
  return std::max((bytes + kPageBytes - 1) / kPageBytes, int64_t{1}) * kPageBytes;
}

Buffer BufferPool::Take(int64_t bytes) {
  Buffer out;
  out.pool_ = this;
  out.size_ = Rounded(bytes);
  const int64_t free_bytes = budget_->total() - budget_->reserved();
  std::vector<std::pair<char*, int64_t>> surplus;
  {
    MutexLock lock(&mu_);
    auto it = cached_.find(out.size_);
    if (it != cached_.end()) {
      out.data_ = it->second.back();
      it->second.pop_back();
      cached_bytes_ -= out.size_;
      if (it->second.empty()) cached_.erase(it);
    }
    while (cached_bytes_ > free_bytes && !cached_.empty()) {
      auto largest = std::prev(cached_.end());
      surplus.emplace_back(largest->second.back(), largest->first);
      cached_bytes_ -= largest->first;
      largest->second.pop_back();
      if (largest->second.empty()) cached_.erase(largest);
    }
  }
  for (const auto& [data, size] : surplus) Unmap(data, size);
  if (out.data_ == nullptr) out.data_ = Map(out.size_);
  return out;
}

void BufferPool::Return(char* data, int64_t size) {
  {
    MutexLock lock(&mu_);
    if (cached_bytes_ + size <= kCachedBytesMax) {
      cached_[size].push_back(data);
      cached_bytes_ += size;
      return;
    }
  }
  Unmap(data, size);
}

int64_t BufferPool::cached_bytes() const {
  MutexLock lock(&mu_);
  return cached_bytes_;
}

}  // namespace torpor::snapshot
