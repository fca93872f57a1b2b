// A library for LD_PRELOAD that notes every call which waits for the disk.
//
// Each process appends one line "<pid> <thread> <call> <file>" to the file named by
// TORPOR_FLUSH_LOG, then makes the call. Programs that make system calls without libc (Go) are not
// seen.

#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace {

int LogFd() {
  static const int fd = [] {
    const char* path = getenv("TORPOR_FLUSH_LOG");
    return path == nullptr ? -1 : open(path, O_WRONLY | O_APPEND | O_CLOEXEC);
  }();
  return fd;
}

void Note(const char* call, int fd) {
  const int saved = errno;
  char link[32];
  char target[512] = "-";
  if (fd >= 0) {
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t n = readlink(link, target, sizeof target - 1);
    if (n > 0) target[n] = '\0';
  }
  char thread[16] = "?";
  pthread_getname_np(pthread_self(), thread, sizeof thread);
  char line[640];
  int length = snprintf(line, sizeof line, "%d %s %s %s\n", getpid(), thread, call, target);
  if (LogFd() >= 0 && write(LogFd(), line, static_cast<size_t>(length)) < 0) abort();
  errno = saved;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

int fsync(int fd) {
  Note("fsync", fd);
  return Next<int (*)(int)>("fsync")(fd);
}

int fdatasync(int fd) {
  Note("fdatasync", fd);
  return Next<int (*)(int)>("fdatasync")(fd);
}

void sync() noexcept {
  Note("sync", -1);
  Next<void (*)()>("sync")();
}

int syncfs(int fd) noexcept {
  Note("syncfs", fd);
  return Next<int (*)(int)>("syncfs")(fd);
}

int sync_file_range(int fd, off64_t offset, off64_t count, unsigned flags) {
  Note("sync_file_range", fd);
  return Next<int (*)(int, off64_t, off64_t, unsigned)>("sync_file_range")(fd, offset, count,
                                                                           flags);
}

int msync(void* address, size_t length, int flags) {
  if ((flags & MS_SYNC) != 0) Note("msync", -1);
  return Next<int (*)(void*, size_t, int)>("msync")(address, length, flags);
}

}  // extern "C"
