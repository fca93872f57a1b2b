#include "os/process/process.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/process/reaper.h"

namespace torpor::os {
namespace {

MonotonicTime In(std::chrono::milliseconds ms) { return std::chrono::steady_clock::now() + ms; }
MonotonicTime Soon() { return In(std::chrono::seconds(20)); }

// Everything here must hold whether or not a reaper collects the children.
class ProcessTest : public testing::TestWithParam<bool> {
 protected:
  void SetUp() override {
    if (GetParam()) {
      auto reaper = Reaper::Start();
      ASSERT_OK(reaper);
      reaper_ = std::move(*reaper);
    }
  }
  std::unique_ptr<Reaper> reaper_;
};

INSTANTIATE_TEST_SUITE_P(, ProcessTest, testing::Bool(), [](const auto& info) {
  return std::string(info.param ? "WithReaper" : "Alone");
});

TEST_P(ProcessTest, ReportsExitCodeAndSignal) {
  ASSERT_OK_AND_ASSIGN(Process exits, Spawn({"/bin/sh", "-c", "exit 7"}));
  ASSERT_OK_AND_ASSIGN(ExitStatus status, exits.Wait(Soon()));
  EXPECT_EQ(status, (ExitStatus{7, 0}));
  ASSERT_OK_AND_ASSIGN(status, exits.Wait(Soon()));
  EXPECT_EQ(status.code, 7) << "the status is kept";

  ASSERT_OK_AND_ASSIGN(Process sleeps, Spawn({"sleep", "100"}));
  EXPECT_THAT(sleeps.Wait(In(std::chrono::milliseconds(1))), HasCode(Code::kDeadlineExceeded));
  EXPECT_OK(sleeps.Signal(SIGTERM));
  ASSERT_OK_AND_ASSIGN(status, sleeps.Wait(Soon()));
  EXPECT_EQ(status, (ExitStatus{0, SIGTERM}));
  EXPECT_EQ(status.ShellCode(), 143);
  EXPECT_OK(sleeps.Signal(SIGTERM)) << "an ended process is no error";
  EXPECT_OK(sleeps.SignalGroup(SIGTERM));
}

TEST_P(ProcessTest, MissingProgramIsNotFound) {
  EXPECT_THAT(Spawn({"/nonexistent/program"}), HasCode(Code::kNotFound));
  EXPECT_THAT(Spawn({}), HasCode(Code::kInvalidArgument));
}

TEST_P(ProcessTest, ChildSeesOnlyItsThreeDescriptors) {
  UniqueFd leaked(open("/dev/null", O_RDONLY));  // deliberately without close-on-exec
  std::string script =
      "test -e /proc/$$/fd/2 && ! test -e /proc/$$/fd/" + std::to_string(leaked.get());
  EXPECT_OK(CommandOutput({"/bin/sh", "-c", script}, {Soon()}));
}

TEST_P(ProcessTest, PassesInputEnvironmentAndDirectory) {
  CommandOptions options{.deadline = Soon(), .input = std::string(300000, 'x')};
  options.env = {"TORPOR_TEST=one two"};
  options.cwd = "/usr";
  ASSERT_OK_AND_ASSIGN(
      CommandResult result,
      RunCommand({"/bin/sh", "-c", "wc -c; pwd; echo $TORPOR_TEST; echo e >&2"}, options));
  EXPECT_EQ(result.out, "300000\n/usr\none two\n");
  EXPECT_EQ(result.err, "e\n");
  EXPECT_FALSE(result.truncated);
}

TEST_P(ProcessTest, CapsOutputWithoutBlockingTheProgram) {
  ASSERT_OK_AND_ASSIGN(CommandResult result,
                       RunCommand({"head", "-c", "3000000", "/dev/zero"},
                                  {.deadline = Soon(), .output_bytes_max = 1000}));
  EXPECT_TRUE(result.status.ok());
  EXPECT_EQ(result.out.size(), 1000u);
  EXPECT_TRUE(result.truncated);
}

TEST_P(ProcessTest, DeadlineKillsTheWholeGroup) {
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  std::string hold = "sleep 100 & exec sleep 100 > /proc/" + std::to_string(getpid()) + "/fd/" +
                     std::to_string(write_end.get());
  EXPECT_THAT(RunCommand({"/bin/sh", "-c", hold}, {.deadline = In(std::chrono::milliseconds(200))}),
              HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  write_end.Reset();
  char byte;
  EXPECT_EQ(read(read_end.get(), &byte, 1), 0) << "the end of the pipe: nobody holds it any more";
}

TEST_P(ProcessTest, DoesNotWaitForAGrandchildThatKeepsTheOutput) {
  ASSERT_OK_AND_ASSIGN(CommandResult result,
                       RunCommand({"/bin/sh", "-c", "echo here; sleep 5 & exit 3"}, {Soon()}));
  EXPECT_EQ(result.status.code, 3);
  EXPECT_EQ(result.out, "here\n");
}

TEST_P(ProcessTest, FailedCommandNamesItsLastLine) {
  EXPECT_THAT(CommandOutput({"/bin/sh", "-c", "echo first >&2; echo why >&2; exit 4"}, {Soon()}),
              MessageHas("exit code 4: why"));
}

TEST_P(ProcessTest, StandardDescriptorsMaySwap) {
  UniqueFd saved(dup(1));
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  UniqueFd read_end(ends[0]), write_end(ends[1]);
  ASSERT_EQ(dup2(write_end.get(), 1), 1);
  write_end.Reset();
  SpawnOptions options;
  options.stdout_fd = 2;
  options.stderr_fd = 1;
  auto process = Spawn({"/bin/sh", "-c", "echo swapped >&2"}, options);
  dup2(saved.get(), 1);
  ASSERT_OK(process);
  ASSERT_OK(process->Wait(Soon()));
  char buffer[16] = {};
  EXPECT_GT(read(read_end.get(), buffer, sizeof buffer), 0);
  EXPECT_STREQ(buffer, "swapped\n");
}

TEST(Pidfd, MissingProcess) { EXPECT_THAT(OpenPidfd(1 << 22), testing::Not(IsOk())); }

}  // namespace
}  // namespace torpor::os
