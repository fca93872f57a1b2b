#pragma once
// Mutex and condition variable with clang thread-safety annotations.
//
// A wrapper over std::mutex instead of absl::Mutex: Debian's abseil is not instrumented, so
// ThreadSanitizer would report races that are none.

#include <chrono>
#include <condition_variable>
#include <mutex>

// Brings GUARDED_BY and NO_THREAD_SAFETY_ANALYSIS, which absl headers define as well.
#include <absl/base/thread_annotations.h>

#if defined(__clang__)
#define TORPOR_TSA(x) __attribute__((x))
#else
#define TORPOR_TSA(x)
#endif
#define REQUIRES(...) TORPOR_TSA(requires_capability(__VA_ARGS__))
#define EXCLUDES(...) TORPOR_TSA(locks_excluded(__VA_ARGS__))
#define ACQUIRE(...) TORPOR_TSA(acquire_capability(__VA_ARGS__))
#define RELEASE(...) TORPOR_TSA(release_capability(__VA_ARGS__))

namespace torpor {

class TORPOR_TSA(capability("mutex")) Mutex {
 public:
  void Lock() ACQUIRE() { mu_.lock(); }
  void Unlock() RELEASE() { mu_.unlock(); }

 private:
  friend class CondVar;
  std::mutex mu_;
};

class TORPOR_TSA(scoped_lockable) MutexLock {
 public:
  explicit MutexLock(Mutex* mu) ACQUIRE(mu) : mu_(mu) { mu_->Lock(); }
  ~MutexLock() RELEASE() { mu_->Unlock(); }
  MutexLock(const MutexLock&) = delete;
  MutexLock& operator=(const MutexLock&) = delete;

 private:
  Mutex* const mu_;
};

class CondVar {
 public:
  // Both are called with `mu` held and return with it held; spurious wake-ups happen.
  void Wait(Mutex* mu) REQUIRES(mu) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    cv_.wait(lock);
    lock.release();
  }
  // False when `deadline` passed.
  bool WaitUntil(Mutex* mu, std::chrono::steady_clock::time_point deadline)
      REQUIRES(mu) NO_THREAD_SAFETY_ANALYSIS {
    std::unique_lock<std::mutex> lock(mu->mu_, std::adopt_lock);
    // The wait is on the system clock: ThreadSanitizer of gcc 12 does not know
    // pthread_cond_clockwait and would see the mutex as held during the wait.
    auto left = deadline - std::chrono::steady_clock::now();
    bool timed_out =
        cv_.wait_until(lock, std::chrono::system_clock::now() +
                                 std::chrono::duration_cast<std::chrono::microseconds>(left)) ==
        std::cv_status::timeout;
    lock.release();
    return !timed_out;
  }
  void Signal() { cv_.notify_one(); }
  void SignalAll() { cv_.notify_all(); }

 private:
  std::condition_variable cv_;
};

}  // namespace torpor
