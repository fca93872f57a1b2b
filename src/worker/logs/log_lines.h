#pragma once
// The decisions of the log writer, without files: what a line is, what is too much.
//
// Not thread-safe.

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/time.h"

namespace torpor::worker {

struct LogLimits {
  size_t line_bytes_max = 64 << 10;
  int64_t bytes_per_second_max = 1 << 20;  // of one actor, all containers together
  int64_t file_bytes_max = 8 << 20;        // then it becomes <name>.1, which is replaced
};

// Cuts a stream of bytes into lines. What exceeds the line's limit is dropped up to its end.
class LineSplitter {
 public:
  using Sink = std::function<void(std::string_view line, bool truncated)>;
  explicit LineSplitter(size_t line_bytes_max) : line_bytes_max_(line_bytes_max) {}
  void Feed(std::string_view bytes, const Sink& sink);
  void End(const Sink& sink);  // a last line without its end

 private:
  void Emit(const Sink& sink);

  const size_t line_bytes_max_;
  std::string line_;
  bool truncated_ = false;
};

// A bucket that fills at `bytes_per_second` up to one second's worth.
class RateBudget {
 public:
  RateBudget(int64_t bytes_per_second, MonotonicTime now)
      : bytes_per_second_(bytes_per_second), left_(bytes_per_second), updated_(now) {}
  bool Take(int64_t bytes, MonotonicTime now);

 private:
  const int64_t bytes_per_second_;
  int64_t left_;
  MonotonicTime updated_;
};

struct LogLine {
  WallTime time;
  std::string_view container;
  std::string_view stream;  // stdout, stderr, torpor
  std::string_view line;
  bool truncated = false;
  int64_t generation = 0;
  int64_t dropped = 0;  // lines, before this one
};

// One line of JSON with its end. Bytes that are not UTF-8 become U+FFFD.
std::string FormatLogLine(const LogLine& line);

}  // namespace torpor::worker
