#pragma once

// CPU load on request. Thread-safe.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace torpor::workloads::glutton {

// Cores that this process may use, at least 1.
int AvailableCores();

// Hashes on `threads` threads until the time is over; returns how many blocks were hashed.
int64_t BurnCpu(std::chrono::milliseconds duration, int threads);

// A load that goes on in the background until it is replaced.
class CpuLoad {
 public:
  ~CpuLoad();

  // Stops the previous load and starts `threads` threads, each busy for `duty` of every cycle.
  void Replace(int threads, double duty, std::chrono::milliseconds cycle);

 private:
  struct Load {
    std::mutex mu;
    std::condition_variable wake;
    bool stop = false;  // guarded by mu
    std::vector<std::thread> threads;
  };

  static void Spin(Load* load, double duty, std::chrono::milliseconds cycle);
  void StopLocked();

  std::mutex mu_;
  std::unique_ptr<Load> load_;  // guarded by mu_
};

}  // namespace torpor::workloads::glutton
