#include "control/store/sqlite/flusher.h"

#include <pthread.h>

#include "base/log.h"

namespace torpor::control {

Flusher::Flusher(Duration after, std::function<Status()> flush)
    : after_(after), flush_(std::move(flush)), thread_([this] { Loop(); }) {}

Flusher::~Flusher() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.SignalAll();
  }
  thread_.join();
}

void Flusher::Note() {
  MutexLock lock(&mu_);
  if (noted_) return;
  noted_ = true;
  changed_.SignalAll();
}

void Flusher::Loop() {
  // A trace of the disk shows by this name that nobody waits.
  pthread_setname_np(pthread_self(), "store-flusher");
  bool failing = false;
  while (true) {
    {
      MutexLock lock(&mu_);
      while (!noted_ && !stopping_) changed_.Wait(&mu_);
      const MonotonicTime due = std::chrono::steady_clock::now() + after_;
      while (!stopping_ && changed_.WaitUntil(&mu_, due)) {
      }
      if (stopping_) return;
      noted_ = false;
    }
    Status status = flush_();
    if (!status.ok()) {
      if (!failing) LogError("the store was not flushed", {{"error", status.ToString()}});
      Note();
    }
    failing = !status.ok();
  }
}

}  // namespace torpor::control
