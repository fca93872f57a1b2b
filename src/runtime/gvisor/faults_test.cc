// The runtime over a scripted runsc that fails in every way we know of.

#include "runtime/gvisor/smoke.h"
#include "runtime/gvisor/testing/faults_fixture.h"

namespace torpor::gvisor {
namespace {

TEST_F(FaultsTest, AFailedRunLeavesNothing) {
  Mode("run", "leave");
  Status status = Start();
  EXPECT_THAT(status, HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_THAT(status, MessageHas("half way"));
  EXPECT_FALSE(guest_ran_);
}

TEST_F(FaultsTest, AHangingRunIsKilledAtItsDeadline) {
  Mode("run", "hang");
  args_.deadline = In(std::chrono::milliseconds(200));
  EXPECT_THAT(Start(), HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  EXPECT_TRUE(guest_ran_) << "nobody can know";
}

TEST_F(FaultsTest, ARunWithoutPidFileIsAFailure) {
  Mode("run", "nopid");
  EXPECT_THAT(Start(), testing::Not(IsOk()));
  EXPECT_TRUE(guest_ran_);
}

TEST_F(FaultsTest, NothingIsStartedWhenTheNetworkFails) {
  args_.prepare_network = [] { return Error(Code::kInternal, "INTERNAL", "no link"); };
  EXPECT_THAT(Start(), MessageHas("no link"));
  EXPECT_FALSE(guest_ran_);
}

TEST_F(FaultsTest, BundleWithoutConfig) {
  std::filesystem::remove(directory_ + "/bundles/app/config.json");
  EXPECT_THAT(Start(), HasReason(Code::kInternal, "INVALID_CONTAINER_CONFIG"));
}

TEST_F(FaultsTest, WhatItCannotDoIsRefused) {
  args_.restore_fidelity = torpor::v1::FIDELITY_ROOTFS;
  EXPECT_THAT(Start(), HasReason(Code::kInvalidArgument, "FIDELITY_UNSUPPORTED"));
  args_.restore_fidelity = torpor::v1::FIDELITY_UNSPECIFIED;
  ASSERT_OK(Start());
  capture_.leave_running = true;
  EXPECT_THAT(Capture(), HasReason(Code::kUnimplemented, "NOT_IMPLEMENTED"));
  EXPECT_TRUE(failure_.guest_alive);
}

TEST_F(FaultsTest, AGuestThatEndsIsReported) {
  ASSERT_OK(Start());
  EXPECT_EQ(kill(sandbox_->main_pid(), SIGKILL), 0);
  ASSERT_TRUE(Reported(std::chrono::seconds(20)));
  EXPECT_EQ(exit_future_.get().signal, SIGKILL);
}

TEST_F(FaultsTest, NothingRunsAfterASuccessfulCapture) {
  ASSERT_OK(Start());
  pid_t pid = sandbox_->main_pid();
  Mode("checkpoint", "stay");
  ASSERT_OK(Capture());
  EXPECT_TRUE(kill(pid, 0) != 0 || OnlyExitingThreads(pid));
  EXPECT_FALSE(Reported(std::chrono::milliseconds(0)));
}

TEST_F(FaultsTest, AFailedCaptureWithALiveGuest) {
  ASSERT_OK(Start());
  Mode("checkpoint", "partial");
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  EXPECT_TRUE(failure_.guest_alive);
  EXPECT_TRUE(std::filesystem::is_empty(capture_.capture_dir));
  EXPECT_EQ(kill(sandbox_->main_pid(), 0), 0);
  EXPECT_FALSE(Reported(std::chrono::milliseconds(0)));
  EXPECT_EQ(kill(sandbox_->main_pid(), SIGKILL), 0);
  EXPECT_TRUE(Reported(std::chrono::seconds(20))) << "its later end is news again";
}

TEST_F(FaultsTest, AFailedCaptureThatKilledTheGuest) {
  ASSERT_OK(Start());
  Mode("checkpoint", "die");
  EXPECT_THAT(Capture(), MessageHas("as asked"));
  EXPECT_FALSE(failure_.guest_alive);
  EXPECT_FALSE(Reported(std::chrono::milliseconds(0))) << "the capture's failure tells it";
}

TEST_F(FaultsTest, AGuestThatDoesNotAnswerIsKilled) {
  ASSERT_OK(Start());
  pid_t pid = sandbox_->main_pid();
  Mode("checkpoint", "fail");
  Mode("ps", "fail");
  EXPECT_THAT(Capture(), HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_FALSE(failure_.guest_alive);
  EXPECT_NE(kill(pid, 0), 0);
}

TEST_F(FaultsTest, AHangingCheckpointIsKilledAtItsDeadline) {
  ASSERT_OK(Start());
  Mode("checkpoint", "hang");
  capture_.deadline = In(std::chrono::milliseconds(200));
  EXPECT_THAT(Capture(), HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  EXPECT_TRUE(failure_.guest_alive);
}

TEST_F(FaultsTest, ACheckpointWithoutFilesIsNoSuccess) {
  ASSERT_OK(Start());
  Mode("checkpoint", "empty");
  EXPECT_THAT(Capture(), HasReason(Code::kInternal, "INVALID_CHECKPOINT_RESULT"));
  EXPECT_FALSE(failure_.guest_alive);
}

TEST_F(FaultsTest, CaptureIntoAFullDirectoryIsRefused) {
  ASSERT_OK(Start());
  std::ofstream(directory_ + "/image/file") << "x";
  EXPECT_THAT(Capture(), MessageHas("not an empty directory"));
  EXPECT_TRUE(failure_.guest_alive);
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/image/file"));
}

TEST_F(FaultsTest, AFailedRestoreHasNotRunTheGuest) {
  args_.restore_fidelity = torpor::v1::FIDELITY_MEMORY;
  args_.restore_dir = directory_ + "/image";
  EXPECT_THAT(Start(), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT")) << "nothing is there";
  std::ofstream(directory_ + "/image/checkpoint.img") << "gVisorSFx";
  Mode("restore", "fail");
  EXPECT_THAT(Start(), HasReason(Code::kInternal, "RUNTIME_FAILED"));
  EXPECT_FALSE(guest_ran_);
  Mode("restore", "");
  EXPECT_OK(Start());
}

// Whatever became of runsc's own record, and whatever its commands say: a sandbox is its processes
// and its directory, and both go.
TEST_F(FaultsTest, B6_ASandboxThatRunscHasForgottenEndsAllTheSame) {
  for (const char* verb : {"list", "ps", "kill", "delete", "wait"}) Mode(verb, "fail");
  for (Duration grace : {Duration::zero(), Duration(std::chrono::milliseconds(100))}) {
    ASSERT_OK(Start());
    const pid_t pid = sandbox_->main_pid();
    std::filesystem::remove_all(args_.state_dir + "/runsc");
    EXPECT_OK(sandbox_->Stop(grace));
    EXPECT_NE(kill(pid, 0), 0);
    EXPECT_TRUE(std::filesystem::is_empty(args_.state_dir));
    EXPECT_OK(sandbox_->Stop(grace)) << "again";
    sandbox_.reset();
    EXPECT_OK(runtime_->CleanUp("a", args_.state_dir)) << "by the next worker";
  }
}

TEST_F(FaultsTest, CleanUpFindsTheProcessesOfAnEarlierWorker) {
  ASSERT_OK(Start());
  EXPECT_OK(runtime_->CleanUp("a", args_.state_dir));
  EXPECT_TRUE(Reported(std::chrono::seconds(20)));
}

TEST_F(FaultsTest, ASmokeTestOfAKilledWorkerIsRemoved) {
  const std::string left = directory_ + "/work/smoke-00ff00ff00ff";
  for (const char* part : {"bundles", "state"}) {
    std::filesystem::create_directories(left + "/" + part);
  }
  std::filesystem::rename(directory_ + "/bundles/app", left + "/bundles/app");
  std::filesystem::create_directories(directory_ + "/work/kept");
  args_.bundles_dir = left + "/bundles";
  args_.state_dir = left + "/state";
  ASSERT_OK(Start());
  EXPECT_OK(RemoveSmokeLeftovers(directory_ + "/work", In(std::chrono::seconds(20))));
  EXPECT_TRUE(Reported(std::chrono::seconds(20)));
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_TRUE(std::filesystem::exists(directory_ + "/work/kept"));
  args_.state_dir = directory_ + "/state";
}

TEST(Leftovers, ExitingThreads) {
  EXPECT_TRUE(IsExiting("42 (runsc-sandbox) Z 1 42 42 0 -1 4194564 0 0"));
  EXPECT_FALSE(IsExiting("42 (a) b) 4 (x) S 1 42 42 0 -1 4194560 0 0"));
  EXPECT_FALSE(IsExiting("42 (a"));
  EXPECT_FALSE(IsExiting("42 (a) S 1"));
  EXPECT_FALSE(OnlyExitingThreads(getpid()));
  EXPECT_FALSE(OnlyExitingThreads(1 << 22));
  auto ended = os::Spawn({"/bin/true"});  // without a reaper it stays a zombie
  ASSERT_OK(ended);
  ASSERT_TRUE(os::WaitPidfd(ended->pidfd(), In(std::chrono::seconds(20))));
  EXPECT_TRUE(OnlyExitingThreads(ended->pid()));
  EXPECT_OK(ended->Wait(In(std::chrono::seconds(20))));
}

TEST(Leftovers, GivesUpOnWhatDoesNotEnd) {
  pid_t self = getpid();
  EXPECT_THAT(KillUntilGone([&] { return std::vector<pid_t>{self}; },
                            std::chrono::steady_clock::now() - std::chrono::seconds(1)),
              HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  EXPECT_OK(KillUntilGone([] { return std::vector<pid_t>{}; }, MonotonicTime()));
}

}  // namespace
}  // namespace torpor::gvisor
