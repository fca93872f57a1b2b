#include "worker/watchdog.h"

#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "os/cgroup/testing/fake_cgroup_fs.h"
#include "worker/testing/service_fixture.h"

namespace torpor::worker {
namespace {

constexpr int64_t kLimit = 128 << 20;

// One sample each 2 s; a stuck guest hits its limit 5000 times a second.
MemorySample Stuck(int step, std::optional<double> pressure) {
  return {.time = MonotonicTime() + seconds(1000 + 2 * step),
          .limit_bytes = kLimit,
          .current_bytes = kLimit - (1 << 20),
          .limit_hits = int64_t{10000} * (step + 1),
          .full_pressure = pressure};
}

struct Case {
  std::string name;
  std::optional<double> pressure;
  std::function<void(int step, MemorySample* sample)> change;
  int stuck_at;  // the first step that says so; -1 = never in 30
};

TEST(ReclaimWatchdog, DecidesByTheTable) {
  const std::vector<Case> cases = {
      {"pressure", 80, [](int, MemorySample*) {}, 10},
      {"no pressure value, many hits", std::nullopt, [](int, MemorySample*) {}, 10},
      {"pressure just not enough", 50, [](int, MemorySample*) {}, -1},
      {"few hits", std::nullopt,
       [](int step, MemorySample* s) { s->limit_hits = 1000 * (step + 1); }, -1},
      {"few hits but pressure", 51, [](int step, MemorySample* s) { s->limit_hits = step + 1; },
       10},
      {"no hits at all", 99, [](int, MemorySample* s) { s->limit_hits = 7; }, -1},
      {"room left", 80, [](int, MemorySample* s) { s->current_bytes = kLimit - (5 << 20); }, -1},
      {"much page cache", 80, [](int, MemorySample* s) { s->cache_bytes = (16 << 20) + 1; }, -1},
      {"some page cache", 80, [](int, MemorySample* s) { s->cache_bytes = 16 << 20; }, 10},
      {"unlimited", 80, [](int, MemorySample* s) { s->limit_bytes = 0; }, -1},
      {"a breath at step 9", 80,
       [](int step, MemorySample* s) {
         if (step == 9) s->full_pressure = 10;
       },
       19},
      {"a breath every 8 steps", 80,
       [](int step, MemorySample* s) {
         if (step % 8 == 0) s->current_bytes = kLimit / 2;
       },
       -1},
      {"nobody looked for 12 s", 80,
       [](int step, MemorySample* s) {
         if (step >= 5) s->time += seconds(10);
       },
       15},
  };
  for (const Case& row : cases) {
    ReclaimWatchdog watchdog(seconds(20));
    int first = -1;
    for (int step = 0; step < 30; ++step) {
      MemorySample sample = Stuck(step, row.pressure);
      row.change(step, &sample);
      if (watchdog.IsStuck(sample) && first < 0) first = step;
    }
    EXPECT_EQ(first, row.stuck_at) << row.name;
  }
}

// A guest that copies files fills its group with page cache and hits the limit all the time.
TEST(ReclaimWatchdog, E11_PageCacheIsNoPressure) {
  for (bool cached : {false, true}) {
    ReclaimWatchdog watchdog(seconds(20));
    bool stuck = false;
    for (int step = 0; step < 30; ++step) {
      os::CgroupUsage usage;
      usage.memory_current_bytes = kLimit;
      usage.memory_working_set_bytes = cached ? kLimit / 2 : kLimit;
      usage.limit_hits = int64_t{10000} * (step + 1);
      stuck |= watchdog.IsStuck(SampleOf(usage, kLimit, MonotonicTime() + seconds(2 * step)));
    }
    EXPECT_EQ(stuck, !cached);
  }
}

// ---- In the worker ----

class MemoryWatchTest : public WorkerServiceTest {
 protected:
  void SetUp() override {
    WorkerServiceTest::SetUp();
    ASSERT_OK_AND_ASSIGN(cgroups_, os::OpenCgroupTree({"/u", {}}, "w", fs_));
    tools_.cgroups = cgroups_.get();
    tools_.memory_watch = {.every = milliseconds(20), .patience = milliseconds(1000)};
    service_ = std::make_unique<WorkerService>(tools_, door_.get(), &exits_, IdSource::Real(),
                                               torpor::v1::WorkerInfo());
    StartWorkloadRequest start = MakeStart(1);
    start.mutable_spec()->set_memory_bytes(int64_t{64} << 20);
    ASSERT_OK_AND_ASSIGN(Operation op, service_->StartWorkload(start));
    ASSERT_EQ(op.state(), Operation::STATE_SUCCEEDED) << op.ShortDebugString();
  }
  void SetFile(const std::string& name, const std::string& content) {
    fs_->SetFile(fmt::format("/u/w/{}/{}", LeafOf(kUid), name), content);
  }

  std::shared_ptr<os::FakeCgroupFs> fs_ =
      std::make_shared<os::FakeCgroupFs>(true, std::set<std::string>{"/u"});
  std::unique_ptr<os::CgroupTree> cgroups_;
};

TEST_F(MemoryWatchTest, AStuckGuestIsEndedAsOutOfMemory) {
  SetFile("memory.current", fmt::to_string(kLimit - 4096));
  SetFile("memory.peak", fmt::to_string(kLimit));
  SetFile("memory.pressure", "full avg10=90.00 avg60=0.00 avg300=0.00 total=1\n");
  MonotonicTime deadline = Clock::Real()->Now() + seconds(30);
  // The limit is hit again and again, as long as nobody ends it.
  for (int64_t hits = 1; exits_.count() == 0 && Clock::Real()->Now() < deadline; ++hits) {
    SetFile("memory.events", fmt::format("max {}\noom_kill 0\n", hits));
    std::this_thread::sleep_for(milliseconds(2));
  }
  torpor::v1::ExitReport report = exits_.WaitForOne();
  EXPECT_EQ(report.reason(), "OUT_OF_MEMORY") << report.message();
  EXPECT_TRUE(report.out_of_memory());
  EXPECT_NE(report.message().find("stuck at its memory limit"), std::string::npos);
  EXPECT_NE(report.message().find("128Mi of 128Mi"), std::string::npos) << report.message();
}

TEST_F(MemoryWatchTest, AnActorWithoutASampleIsLeftOut) {
  EXPECT_EQ(service_->GetWorkloadStats({}).stats_size(), 0);
  SetFile("memory.current", "5000000\n");
  SetFile("memory.stat", "inactive_file 1000000\n");
  SetFile("cpu.stat", "usage_usec 77\n");
  torpor::v1::GetWorkloadStatsResponse response = service_->GetWorkloadStats({});
  ASSERT_EQ(response.stats_size(), 1);
  EXPECT_EQ(response.stats(0).memory_current_bytes(), 5000000);
  EXPECT_EQ(response.stats(0).memory_working_set_bytes(), 4000000);
  EXPECT_EQ(response.stats(0).cpu_usage_us(), 77);
}

}  // namespace
}  // namespace torpor::worker
