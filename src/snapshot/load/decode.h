#pragma once
// The reverse of save/encode.h: zstd streams into a sparse file.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"

namespace torpor::snapshot {

inline constexpr int kZstdWindowLogMax = 23;

// Belongs to one thread; `fd` is an empty regular file and outlives the decoder. Memory: the window
// of the stream (at most 8 MiB) and 1 MiB.
//
// Runs of zeros become holes. Nothing is written behind `logical_bytes`. A violation is DATA_LOSS
// SNAPSHOT_CORRUPT with the offset; a full disk RESOURCE_EXHAUSTED DISK_FULL.
class Decoder {
 public:
  Decoder(int fd, int64_t logical_bytes);
  ~Decoder();
  Decoder(const Decoder&) = delete;
  Decoder& operator=(const Decoder&) = delete;

  Status Init();
  Status Append(std::string_view encoded);
  // The stream ended, and it held exactly logical_bytes.
  Status Finish();

 private:
  struct Context;
  Status Write(std::string_view bytes);
  Status WriteRun(std::string_view bytes, int64_t offset);

  const int fd_;
  const int64_t size_;
  int64_t written_ = 0;
  bool frame_open_ = true;  // an object without any frame is damaged, too
  std::unique_ptr<Context> context_;
  std::string output_;
};

}  // namespace torpor::snapshot
