#pragma once
// The bytes read from one socket and not yet used. Grows on demand, gives its memory back when
// empty. While a write refers to its bytes it is pinned: they stay where they are.
//
// Not thread-safe.

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <string_view>

namespace torpor::router {

class ReadBuffer {
 public:
  char* data() { return data_.get() + begin_; }
  size_t size() const { return end_ - begin_; }
  bool empty() const { return begin_ == end_; }
  std::string_view view() const { return {data_.get() + begin_, size()}; }

  // Makes room for at least `want_min` bytes behind the data and returns how much there is, at most
  // so much that `size() <= limit`. 0: full, or pinned without room.
  size_t Prepare(size_t want_min, size_t limit) {
    if (size() >= limit) return 0;
    if (begin_ == end_ && !pinned_) begin_ = end_ = 0;
    if (capacity_ - end_ < want_min && !pinned_) {
      if (capacity_ - size() >= want_min) {
        memmove(data_.get(), data(), size());
      } else {
        size_t capacity = std::max<size_t>(capacity_ * 4, 4096);
        while (capacity < size() + want_min) capacity *= 4;
        auto grown = std::make_unique_for_overwrite<char[]>(capacity);
        if (size() > 0) memcpy(grown.get(), data(), size());
        data_ = std::move(grown);
        capacity_ = capacity;
      }
      end_ = size();
      begin_ = 0;
    }
    return std::min(capacity_ - end_, limit - size());
  }
  char* tail() { return data_.get() + end_; }
  void Commit(size_t n) { end_ += n; }
  void Consume(size_t n) { begin_ += n; }
  void Pin() { pinned_ = true; }
  void Unpin() { pinned_ = false; }
  // Gives memory beyond the smallest size back; only when empty, unpinned and no read is pending.
  void Shrink() {
    if (!empty() || pinned_) return;
    begin_ = end_ = 0;
    if (capacity_ <= 4096) return;
    data_.reset();
    capacity_ = 0;
  }
  void Clear() { begin_ = end_ = 0; }

 private:
  std::unique_ptr<char[]> data_;
  size_t capacity_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;
  bool pinned_ = false;
};

}  // namespace torpor::router
