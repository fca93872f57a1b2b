#include "os/process/reaper.h"

#include <signal.h>
#include <unistd.h>

#include <future>
#include <thread>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/process/process.h"

namespace torpor::os {
namespace {

MonotonicTime Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

// A grandchild whose parent has gone: its pid as the shell printed it.
pid_t Orphan(const std::string& script) {
  auto out =
      CommandOutput({"/bin/sh", "-c", "(" + script + ") >/dev/null 2>&1 & echo $!"}, {Soon()});
  EXPECT_OK(out);
  return out.ok() ? static_cast<pid_t>(std::stoi(*out)) : -1;
}

TEST(Reaper, OnlyOnePerProcess) {
  ASSERT_OK_AND_ASSIGN(auto reaper, Reaper::Start());
  EXPECT_THAT(Reaper::Start(), HasCode(Code::kAlreadyExists));
  reaper.reset();
  EXPECT_OK(Reaper::Start());
}

TEST(Reaper, ReportsTheExitOfAnOrphan) {
  ASSERT_OK_AND_ASSIGN(auto reaper, Reaper::Start());
  MonotonicTime start = std::chrono::steady_clock::now();
  pid_t pid = Orphan("sleep 100");
  std::promise<ExitStatus> ended;
  ASSERT_OK_AND_ASSIGN(auto watched,
                       reaper->Watch(pid, start, [&](ExitStatus s) { ended.set_value(s); }));
  EXPECT_FALSE(watched->ended());
  EXPECT_OK(watched->Signal(SIGKILL));
  auto future = ended.get_future();
  ASSERT_EQ(future.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  EXPECT_EQ(future.get(), (ExitStatus{0, SIGKILL}));
  ASSERT_OK_AND_ASSIGN(ExitStatus status, watched->Wait(Soon()));
  EXPECT_EQ(status.signal, SIGKILL);
  EXPECT_NE(kill(pid, 0), 0) << "it was collected, not left a zombie";
}

TEST(Reaper, AnOrphanThatEndedBeforeItWasWatchedIsStillReported) {
  ASSERT_OK_AND_ASSIGN(auto reaper, Reaper::Start());
  MonotonicTime start = std::chrono::steady_clock::now();
  pid_t pid = Orphan("while kill -0 $$; do :; done; exit 5");
  // It ends when its parent, the shell, has been collected; then the reaper collects it.
  while (kill(pid, 0) == 0) std::this_thread::yield();
  int code = -1;
  ASSERT_OK_AND_ASSIGN(auto watched,
                       reaper->Watch(pid, start, [&](ExitStatus s) { code = s.code; }));
  EXPECT_EQ(code, 5);
  EXPECT_TRUE(watched->ended());
  EXPECT_OK(watched->Signal(SIGKILL));
  // An older process with that number is not meant.
  EXPECT_THAT(reaper->Watch(pid, std::chrono::steady_clock::now(), nullptr),
              HasCode(Code::kNotFound));
}

TEST(Reaper, AHeldPidIsNotCollected) {
  ASSERT_OK_AND_ASSIGN(auto reaper, Reaper::Start());
  MonotonicTime start = std::chrono::steady_clock::now();
  pid_t pid = Orphan("sleep 100");
  ASSERT_OK_AND_ASSIGN(auto watched, reaper->Watch(pid, start, nullptr));
  auto held = watched->HoldPid();
  auto again = watched->HoldPid();
  ASSERT_NE(held, nullptr);
  EXPECT_OK(watched->Signal(SIGKILL));
  ASSERT_TRUE(WaitPidfd(watched->pidfd(), Soon()));
  EXPECT_THAT(watched->Wait(std::chrono::steady_clock::now()), HasCode(Code::kDeadlineExceeded));
  held.reset();
  EXPECT_EQ(kill(pid, 0), 0) << "the second hold still counts";
  again.reset();
  EXPECT_OK(watched->Wait(Soon()));
  EXPECT_EQ(watched->HoldPid(), nullptr) << "nothing is left to hold";
}

TEST(Reaper, NoCallbackAfterTheWatchIsGone) {
  ASSERT_OK_AND_ASSIGN(auto reaper, Reaper::Start());
  MonotonicTime start = std::chrono::steady_clock::now();
  pid_t pid = Orphan("sleep 100");
  bool called = false;
  ASSERT_OK_AND_ASSIGN(auto watched, reaper->Watch(pid, start, [&](ExitStatus) { called = true; }));
  ASSERT_OK_AND_ASSIGN(auto other, reaper->Watch(pid, start, nullptr));
  watched.reset();
  EXPECT_OK(other->Signal(SIGKILL));
  EXPECT_OK(other->Wait(Soon()));
  EXPECT_FALSE(called);
}

TEST(Reaper, CallbackMayDestroyItsWatch) {
  ASSERT_OK_AND_ASSIGN(auto reaper, Reaper::Start());
  MonotonicTime start = std::chrono::steady_clock::now();
  pid_t pid = Orphan("sleep 100");
  std::unique_ptr<Reaper::Watched> watched;
  std::promise<void> destroyed;
  std::promise<void> stored;
  auto stored_future = stored.get_future();
  auto result = reaper->Watch(pid, start, [&](ExitStatus) {
    stored_future.wait();
    watched.reset();
    destroyed.set_value();
  });
  ASSERT_OK(result);
  watched = std::move(*result);
  stored.set_value();
  EXPECT_EQ(kill(pid, SIGKILL), 0);  // the callback may destroy the watch from here on
  EXPECT_EQ(destroyed.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST(Reaper, WatchDeadline) {
  ASSERT_OK_AND_ASSIGN(auto reaper, Reaper::Start());
  MonotonicTime start = std::chrono::steady_clock::now();
  ASSERT_OK_AND_ASSIGN(auto watched, reaper->Watch(Orphan("sleep 100"), start, nullptr));
  EXPECT_THAT(watched->Wait(std::chrono::steady_clock::now() + std::chrono::milliseconds(5)),
              HasCode(Code::kDeadlineExceeded));
  EXPECT_OK(watched->Signal(SIGKILL));
  EXPECT_OK(watched->Wait(Soon()));
}

TEST(Reaper, ManyThreadsGetTheirOwnStatuses) {
  ASSERT_OK_AND_ASSIGN(auto reaper, Reaper::Start());
  std::vector<std::thread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 15; ++i) {
        int code = (t * 15 + i) % 100 + 1;
        auto result = RunCommand({"/bin/sh", "-c", "exit " + std::to_string(code)}, {Soon()});
        if (!result.ok() || result->status.code != code) ++wrong;
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(Reaper, StatusSurvivesTheReapersEnd) {
  ASSERT_OK_AND_ASSIGN(auto reaper, Reaper::Start());
  ASSERT_OK_AND_ASSIGN(Process before, Spawn({"/bin/sh", "-c", "exit 3"}));
  ASSERT_TRUE(WaitPidfd(before.pidfd(), Soon()));
  ASSERT_OK_AND_ASSIGN(Process after, Spawn({"sleep", "100"}));
  reaper.reset();
  ASSERT_OK_AND_ASSIGN(ExitStatus status, before.Wait(Soon()));
  EXPECT_EQ(status.code, 3);
  EXPECT_OK(after.Signal(SIGKILL));
  ASSERT_OK_AND_ASSIGN(status, after.Wait(Soon()));
  EXPECT_EQ(status.signal, SIGKILL);
}

}  // namespace
}  // namespace torpor::os
