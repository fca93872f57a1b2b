#include "bench/machine.h"

#include <gtest/gtest.h>

#include <unistd.h>
#include <atomic>
#include <thread>

namespace torpor::bench {
namespace {

TEST(MachineTest, OneBenchmarkAtATime) {
  std::string path = testing::TempDir() + "/bench-lock-" + std::to_string(getpid());
  {
    auto first = MachineLock::Take(path);
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ(MachineLock::Take(path).status().code(), Code::kFailedPrecondition);
  }
  EXPECT_TRUE(MachineLock::Take(path).ok());
  unlink(path.c_str());
}

TEST(MachineTest, ReadsProcessStat) {
  auto process = ParseProcessStat(
      "77 (a ) (b) S 12 77 77 0 -1 4194560 1 2 3 4 100 20 3000 400 20 0 1 0 99 0 0");
  ASSERT_TRUE(process);
  EXPECT_EQ(process->pid, 77);
  EXPECT_EQ(process->parent, 12);
  EXPECT_EQ(process->ticks, 3520);
  EXPECT_FALSE(ParseProcessStat(""));
  EXPECT_FALSE(ParseProcessStat("77 (a) S 12"));
}

TEST(MachineTest, OthersAreNeitherOursNorTheKernels) {
  std::vector<ProcessTime> table = {{1, 0, 1},        {2, 0, 10},      {3, 2, 100},
                                    {20, 1, 1000},    {21, 20, 10000}, {30, 1, 100000},
                                    {40, 99, 1000000}};
  EXPECT_EQ(TicksOfOthers(table, {20}), 1100001);
  EXPECT_EQ(TicksOfOthers(table, {20, 30}), 1000001);
  // A loop, as a table that was read while processes came and went may hold.
  EXPECT_EQ(TicksOfOthers({{5, 6, 1}, {6, 5, 2}}, {20}), 3);
}

TEST(MachineTest, KnowsThisMachine) {
  Machine machine = ReadMachine("/");
  EXPECT_FALSE(machine.kernel.empty());
  EXPECT_GE(machine.cores, 1);
  EXPECT_GT(machine.memory_bytes, 0);
  Build build = ReadBuild("");
  EXPECT_EQ(build.revision, "unknown");
  EXPECT_EQ(build.binary_sha256.size(), 64u);
}

TEST(MachineTest, WatchSeesTheDriversOwnTime) {
  CpuWatch watch({getpid()});
  const MonotonicTime end = Clock::Real()->Now() + std::chrono::milliseconds(100);
  while (Clock::Real()->Now() < end) {
  }
  Repeat repeat;
  watch.Finish(&repeat);
  EXPECT_GT(repeat.driver_cpu, 0.05);
  EXPECT_LE(repeat.driver_cpu, 2);
}

TEST(MachineTest, FindsWhatIsBelowAProcess) {
  const std::vector<ProcessTime> table = {
      {1, 0, 0}, {2, 0, 0}, {10, 1, 0}, {12, 11, 0}, {11, 10, 0}};
  EXPECT_EQ(PidsBelow(table, 10), (std::vector<pid_t>{10, 11, 12}));
  EXPECT_EQ(PidsBelow(table, 99), (std::vector<pid_t>{99}));
}

TEST(MachineTest, ReadsTimeAndMemoryOfOneProcess) {
  EXPECT_GT(CpuNs(getpid()), 0);
  EXPECT_GT(PssBytes(getpid()), 0);
  EXPECT_EQ(CpuNs(-1), 0);
  EXPECT_EQ(PssBytes(-1), 0);
  // A thread of another name adds to the whole and is left out when asked.
  std::atomic<bool> stop{false}, burnt{false};
  std::thread busy([&] {
    pthread_setname_np(pthread_self(), "bench-busy");
    while (CpuNs(getpid(), "") < CpuNs(getpid(), "bench-busy") + 1000000) {
    }
    burnt = true;
    while (!stop) std::this_thread::yield();
  });
  while (!burnt) std::this_thread::yield();
  const int64_t without = CpuNs(getpid(), "bench-busy");
  EXPECT_GE(CpuNs(getpid()), without + 1000000);
  stop = true;
  busy.join();
}

}  // namespace
}  // namespace torpor::bench
