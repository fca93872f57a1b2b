#include "base/thread_pool.h"

#include <atomic>

#include <gtest/gtest.h>

namespace torpor {
namespace {

TEST(ThreadPool, RunsEverythingBeforeItsEnd) {
  std::atomic<int> done{0};
  {
    ThreadPool pool(4);
    for (int i = 0; i < 100; ++i) pool.Run([&] { ++done; });
  }
  EXPECT_EQ(done, 100);
}

TEST(ThreadPool, BlockedWorkDoesNotHoldUpOthers) {
  Mutex mu;
  CondVar changed;
  bool second_ran = false;
  bool first_ended = false;
  ThreadPool pool(2);
  pool.Run([&] {
    MutexLock lock(&mu);
    while (!second_ran) changed.Wait(&mu);
    first_ended = true;
    changed.SignalAll();
  });
  pool.Run([&] {
    MutexLock lock(&mu);
    second_ran = true;
    changed.SignalAll();
  });
  MutexLock lock(&mu);
  while (!first_ended) changed.Wait(&mu);
  EXPECT_TRUE(second_ran);
}

}  // namespace
}  // namespace torpor
