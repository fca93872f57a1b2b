#include "worker/priority_semaphore.h"

#include <sys/eventfd.h>

#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "worker/testing/service_fixture.h"

namespace torpor::worker {
namespace {

// Waiters that come one after the other and note in which order they had their turn.
class PrioritySemaphoreTest : public testing::Test {
 protected:
  ~PrioritySemaphoreTest() override {
    for (std::thread& thread : threads_) thread.join();
  }
  // Returns when it waits.
  void Arrive(char name, Priority priority) {
    threads_.emplace_back([this, name, priority] {
      auto permit = semaphore_.Acquire(priority, FarAway());
      ASSERT_OK(permit);
      MutexLock lock(&mu_);
      order_ += name;
    });
    ++arrived_;
    while (semaphore_.waiting() < arrived_) std::this_thread::yield();
  }
  std::string OrderAfter(PrioritySemaphore::Permit permit) {
    {
      PrioritySemaphore::Permit given_back = std::move(permit);
    }
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    MutexLock lock(&mu_);
    return order_;
  }
  MonotonicTime FarAway() const { return clock_.Now() + std::chrono::hours(1); }

  FakeClock clock_;
  PrioritySemaphore semaphore_{1, 1, seconds(10), &clock_};
  int arrived_ = 0;
  std::vector<std::thread> threads_;
  Mutex mu_;
  std::string order_ GUARDED_BY(mu_);
};

TEST_F(PrioritySemaphoreTest, RestoresGoBeforeCapturesAndThoseBeforeWhatIsMadeInAdvance) {
  ASSERT_OK_AND_ASSIGN(auto permit, semaphore_.Acquire(Priority::kCapture, FarAway()));
  Arrive('p', Priority::kPrepare);
  Arrive('c', Priority::kCapture);
  Arrive('d', Priority::kCapture);
  Arrive('r', Priority::kRestore);
  Arrive('s', Priority::kRestore);
  EXPECT_EQ(OrderAfter(std::move(permit)), "rscdp");
}

TEST_F(PrioritySemaphoreTest, WhoHasWaitedLongGoesBeforeWhatCameLater) {
  ASSERT_OK_AND_ASSIGN(auto permit, semaphore_.Acquire(Priority::kRestore, FarAway()));
  Arrive('c', Priority::kCapture);
  clock_.Advance(seconds(10));
  Arrive('r', Priority::kRestore);
  Arrive('d', Priority::kCapture);
  EXPECT_EQ(OrderAfter(std::move(permit)), "crd");
}

TEST_F(PrioritySemaphoreTest, WhoIsCalledOffLeavesTheQueue) {
  ASSERT_OK_AND_ASSIGN(auto permit, semaphore_.Acquire(Priority::kRestore, FarAway()));
  UniqueFd cancel(eventfd(1, EFD_CLOEXEC));
  EXPECT_THAT(semaphore_.Acquire(Priority::kRestore, FarAway(), cancel.get()),
              HasReason(Code::kCancelled, "CANCELLED"));
  EXPECT_EQ(semaphore_.waiting(), 0);
}

TEST_F(PrioritySemaphoreTest, NoMoreThanItsPermitsAtOnce) {
  PrioritySemaphore two(2, 2, seconds(10), &clock_);
  ASSERT_OK_AND_ASSIGN(auto first, two.Acquire(Priority::kCapture, FarAway()));
  ASSERT_OK_AND_ASSIGN(auto second, two.Acquire(Priority::kCapture, FarAway()));
  const MonotonicTime past;  // of either clock
  EXPECT_THAT(two.Acquire(Priority::kRestore, past),
              HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  EXPECT_EQ(two.waiting(), 0);
  {
    PrioritySemaphore::Permit given_back = std::move(second);
  }
  EXPECT_OK(two.Acquire(Priority::kRestore, past)) << "a free permit needs no waiting";
}

TEST_F(PrioritySemaphoreTest, OnePermitIsLeftForAWake) {
  PrioritySemaphore two(2, 1, seconds(10), &clock_);
  const MonotonicTime past;
  {
    ASSERT_OK_AND_ASSIGN(auto capture, two.Acquire(Priority::kCapture, FarAway()));
    EXPECT_THAT(two.Acquire(Priority::kCapture, past),
                HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
    EXPECT_THAT(two.Acquire(Priority::kPrepare, past),
                HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
    EXPECT_OK(two.Acquire(Priority::kRestore, past));
  }
  ASSERT_OK_AND_ASSIGN(auto capture, two.Acquire(Priority::kCapture, past));
  ASSERT_OK_AND_ASSIGN(auto first, two.Acquire(Priority::kRestore, FarAway()));
  EXPECT_THAT(two.Acquire(Priority::kRestore, past),
              HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
}

// A service whose only permit the test can hold.
class QueueTest : public WorkerServiceTest {
 protected:
  void SetUp() override {
    WorkerServiceTest::SetUp();
    tools_.memory_images = &semaphore_;
    service_ = std::make_unique<WorkerService>(tools_, door_.get(), &exits_, IdSource::Real(),
                                               torpor::v1::WorkerInfo());
  }
  PrioritySemaphore::Permit Hold() {
    auto permit = semaphore_.Acquire(Priority::kCapture, MonotonicTime::max());
    EXPECT_OK(permit);
    return permit.ok() ? std::move(*permit) : PrioritySemaphore::Permit();
  }
  StartWorkloadRequest MakeRestore(int64_t generation) {
    StartWorkloadRequest start = MakeStart(generation);
    std::ofstream(ActorDir() + "/local-checkpoint/g1/memory.img") << "12345";
    start.mutable_dirs()->set_restore(start.dirs().root() + "/local-checkpoint/g1");
    start.set_restore(torpor::v1::FIDELITY_MEMORY);
    start.add_files()->set_name("memory.img");
    start.mutable_files(0)->set_logical_bytes(5);
    return start;
  }
  // The operation waits for a turn that never comes; a stop with a higher generation ends it.
  // How it ended.
  template <typename Call>
  Operation SupersededBeforeItsTurn(int64_t stop_generation, const Call& call) {
    PrioritySemaphore::Permit permit = Hold();
    Operation operation;
    std::thread thread([&] {
      auto done = call();
      EXPECT_OK(done);
      if (done.ok()) operation = *done;
    });
    while (semaphore_.waiting() == 0) std::this_thread::yield();
    EXPECT_OK(service_->StopWorkload(Make<StopWorkloadRequest>(stop_generation)));
    thread.join();
    EXPECT_EQ(semaphore_.waiting(), 0);
    return operation;
  }
  // The operation must wait for a turn; how it went, once it got one.
  template <typename Call>
  Operation AfterItsTurn(const Call& call) {
    PrioritySemaphore::Permit permit = Hold();
    Operation operation;
    std::atomic<bool> ended{false};
    std::thread thread([&] {
      auto done = call();
      ended = true;
      EXPECT_OK(done);
      if (done.ok()) operation = *done;
    });
    while (semaphore_.waiting() == 0 && !ended) std::this_thread::yield();
    EXPECT_FALSE(ended) << "it did not wait";
    std::this_thread::sleep_for(milliseconds(2));  // what waits less is no phase
    {
      PrioritySemaphore::Permit given_back = std::move(permit);
    }
    thread.join();
    EXPECT_EQ(operation.state(), Operation::STATE_SUCCEEDED) << operation.ShortDebugString();
    return operation;
  }

  PrioritySemaphore semaphore_{1, 1, seconds(10), Clock::Real()};
};

std::vector<std::string> Names(const Operation& operation) {
  std::vector<std::string> names;
  for (const auto& phase : operation.phases()) names.push_back(phase.name());
  return names;
}

TEST_F(QueueTest, MemoryImagesAreReadAndWrittenInTurns) {
  {
    PrioritySemaphore::Permit permit = Hold();
    StartOk(1);  // a cold boot reads no image
  }
  Operation op = AfterItsTurn([&] { return service_->CaptureWorkload(MakeCapture(2)); });
  EXPECT_THAT(Names(op), testing::ElementsAre("drain", "queue", "checkpoint"));
  op = AfterItsTurn([&] { return service_->StartWorkload(MakeRestore(3)); });
  EXPECT_THAT(Names(op), testing::ElementsAre("queue", "restore", "probe"));
  // What it held is given back each time.
  EXPECT_OK(service_->CaptureWorkload(MakeCapture(4)));
}

TEST_F(QueueTest, WhatIsSupersededWhileItWaitsEndsAtOnce) {
  StartOk(1);
  std::string reason;
  Operation op =
      SupersededBeforeItsTurn(3, [&] { return service_->CaptureWorkload(MakeCapture(2)); });
  EXPECT_EQ(ErrorOf(op, &reason)["guest_alive"], "true");
  EXPECT_EQ(reason, "SUPERSEDED");
  EXPECT_FALSE(std::filesystem::exists(ActorDir() + "/checkpoint-state/memory.img"));
  op = SupersededBeforeItsTurn(5, [&] { return service_->StartWorkload(MakeRestore(4)); });
  EXPECT_EQ(ErrorOf(op, &reason)["guest_ran"], "false");
  EXPECT_EQ(reason, "SUPERSEDED");
}

}  // namespace
}  // namespace torpor::worker
