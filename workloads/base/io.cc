#include "workloads/base/io.h"

#include <fcntl.h>
#include <sys/random.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace torpor::workloads {

void UniqueFd::Reset(int fd) {
  // close is not repeated on EINTR: Linux has released the descriptor by then.
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

std::string ErrnoText(std::string_view what) {
  const int error = errno;
  return std::string(what) + ": " + std::strerror(error);
}

UniqueFd OpenFile(const std::string& path, int flags, unsigned mode) {
  int fd;
  do {
    fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  } while (fd < 0 && errno == EINTR);
  return UniqueFd(fd);
}

ssize_t ReadFull(int fd, void* buffer, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::read(fd, static_cast<char*>(buffer) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    done += static_cast<size_t>(n);
  }
  return static_cast<ssize_t>(done);
}

bool WriteFull(int fd, const void* data, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::write(fd, static_cast<const char*>(data) + done, size - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return false;
    done += static_cast<size_t>(n);
  }
  return true;
}

std::optional<std::string> ReadSmallFile(const std::string& path, size_t max_bytes) {
  UniqueFd fd = OpenFile(path, O_RDONLY);
  if (!fd.ok()) return std::nullopt;
  std::string content(max_bytes, '\0');
  const ssize_t n = ReadFull(fd.get(), content.data(), content.size());
  if (n < 0) return std::nullopt;
  content.resize(static_cast<size_t>(n));
  return content;
}

void KernelRandom(void* buffer, size_t size) {
  size_t done = 0;
  while (done < size) {
    const ssize_t n = ::getrandom(static_cast<char*>(buffer) + done, size - done, 0);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) std::abort();
    done += static_cast<size_t>(n);
  }
}

std::string Hex(const void* data, size_t size) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const auto* bytes = static_cast<const unsigned char*>(data);
  std::string text;
  text.reserve(size * 2);
  for (size_t i = 0; i < size; ++i) {
    text.push_back(kDigits[bytes[i] >> 4]);
    text.push_back(kDigits[bytes[i] & 15]);
  }
  return text;
}

std::string NewUuid() {
  unsigned char bytes[16];
  KernelRandom(bytes, sizeof(bytes));
  bytes[6] = static_cast<unsigned char>((bytes[6] & 0x0f) | 0x40);
  bytes[8] = static_cast<unsigned char>((bytes[8] & 0x3f) | 0x80);
  std::string hex = Hex(bytes, sizeof(bytes));
  for (size_t position : {8, 13, 18, 23}) hex.insert(position, 1, '-');
  return hex;
}

namespace {
int64_t ReadClock(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<int64_t>(now.tv_sec) * 1'000'000'000 + now.tv_nsec;
}
}  // namespace

int64_t MonotonicNs() { return ReadClock(CLOCK_MONOTONIC); }
int64_t WallNs() { return ReadClock(CLOCK_REALTIME); }

void LogLine(const std::string& text) {
  const std::string line = text + "\n";
  // Logging must never stop the workload, so a broken stdout is ignored.
  (void)WriteFull(STDOUT_FILENO, line.data(), line.size());
}

}  // namespace torpor::workloads
