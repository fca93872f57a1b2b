#pragma once

// Small wrappers over Linux calls for the workloads. Every blocking call here is repeated on EINTR,
// because a sandbox that is checkpointed and restored sees EINTR from calls that no signal broke.
// Functions are thread-safe; errors are returned as text with the errno's meaning.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace torpor::workloads {

// Owns one file descriptor.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    Reset(std::exchange(other.fd_, -1));
    return *this;
  }
  ~UniqueFd() { Reset(); }

  int get() const { return fd_; }
  bool ok() const { return fd_ >= 0; }
  void Reset(int fd = -1);

 private:
  int fd_ = -1;
};

// "what: No such file or directory" for the current errno.
std::string ErrnoText(std::string_view what);

// open(2) with O_CLOEXEC, repeated on EINTR.
UniqueFd OpenFile(const std::string& path, int flags, unsigned mode = 0644);

// Returns the bytes read (short only at the end of the file), or -1 with errno.
ssize_t ReadFull(int fd, void* buffer, size_t size);

// Writes everything or returns false with errno.
bool WriteFull(int fd, const void* data, size_t size);

// Content of a file of at most `max_bytes`, or nothing if it cannot be read.
std::optional<std::string> ReadSmallFile(const std::string& path, size_t max_bytes = 65536);

// Fills from the kernel's generator; aborts if there is none, since no caller could go on.
void KernelRandom(void* buffer, size_t size);

std::string Hex(const void* data, size_t size);

// A random version 4 UUID, new at every call.
std::string NewUuid();

int64_t MonotonicNs();
int64_t WallNs();

// One line to stdout, flushed at once, so that the last line before a checkpoint is not lost.
void LogLine(const std::string& text);

}  // namespace torpor::workloads
