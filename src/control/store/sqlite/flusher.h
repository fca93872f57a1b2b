#pragma once
// Runs a flush soon after something was written, on a thread of its own, so that no writer waits
// for the disk. Thread-safe. The destructor waits for a flush under way and drops one that is due.

#include <functional>
#include <thread>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"

namespace torpor::control {

class Flusher {
 public:
  // `flush` runs at most `after` later than the first Note that it covers; one that fails is
  // repeated.
  Flusher(Duration after, std::function<Status()> flush);
  ~Flusher();
  Flusher(const Flusher&) = delete;
  Flusher& operator=(const Flusher&) = delete;

  void Note() EXCLUDES(mu_);

 private:
  void Loop() EXCLUDES(mu_);

  const Duration after_;
  const std::function<Status()> flush_;
  Mutex mu_;
  CondVar changed_;
  bool noted_ GUARDED_BY(mu_) = false;
  bool stopping_ GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace torpor::control
