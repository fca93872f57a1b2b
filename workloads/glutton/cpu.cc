#include "workloads/glutton/cpu.h"

#include <algorithm>
#include <atomic>

#include "workloads/base/digest.h"

namespace torpor::workloads::glutton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kBlocksPerLook = 512;  // about 20 us of hashing between two looks at the clock

int64_t HashUntil(Clock::time_point end) {
  uint32_t state[8] = {};
  unsigned char block[64] = {};
  int64_t iterations = 0;
  do {
    for (int i = 0; i < kBlocksPerLook; ++i) {
      // Each block depends on the last digest, so that the compiler can leave nothing out.
      block[0] = static_cast<unsigned char>(state[0]);
      Sha256::Compress(state, block, 1);
    }
    iterations += kBlocksPerLook;
  } while (Clock::now() < end);
  static std::atomic<uint32_t> sink;
  sink.store(state[0], std::memory_order_relaxed);
  return iterations;
}

}  // namespace

int AvailableCores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

int64_t BurnCpu(std::chrono::milliseconds duration, int threads) {
  const Clock::time_point end = Clock::now() + duration;
  std::atomic<int64_t> iterations = 0;
  std::vector<std::thread> others;
  for (int i = 1; i < threads; ++i) {
    others.emplace_back([&iterations, end] { iterations += HashUntil(end); });
  }
  iterations += HashUntil(end);
  for (std::thread& thread : others) thread.join();
  return iterations;
}

CpuLoad::~CpuLoad() {
  const std::lock_guard lock(mu_);
  StopLocked();
}

void CpuLoad::Replace(int threads, double duty, std::chrono::milliseconds cycle) {
  const std::lock_guard lock(mu_);
  StopLocked();
  if (threads == 0 || duty == 0) return;
  load_ = std::make_unique<Load>();
  for (int i = 0; i < threads; ++i) {
    load_->threads.emplace_back([load = load_.get(), duty, cycle] { Spin(load, duty, cycle); });
  }
}

void CpuLoad::Spin(Load* load, double duty, std::chrono::milliseconds cycle) {
  const auto busy = std::chrono::duration_cast<Clock::duration>(cycle * duty);
  std::unique_lock lock(load->mu);
  while (!load->stop) {
    // The next cycle starts from now and not from the last end: after a restore the clock has
    // jumped, and the missed cycles must not be made up.
    const Clock::time_point start = Clock::now();
    lock.unlock();
    HashUntil(start + busy);
    lock.lock();
    load->wake.wait_until(lock, start + cycle, [load] { return load->stop; });
  }
}

void CpuLoad::StopLocked() {
  if (!load_) return;
  {
    const std::lock_guard lock(load_->mu);
    load_->stop = true;
  }
  load_->wake.notify_all();
  for (std::thread& thread : load_->threads) thread.join();
  load_.reset();
}

}  // namespace torpor::workloads::glutton
