#include "apps/up/supervisor.h"

#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"

namespace torpor::up {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::string TestDir() {
  std::string dir = testing::TempDir() + "/supervisor-" + std::to_string(getpid());
  std::filesystem::create_directories(dir);
  return dir;
}

Role Shell(const std::string& name, const std::string& script) {
  return {name, {"/bin/sh", "-c", script}, TestDir() + "/" + name + ".log", seconds(5)};
}

TEST(RestartPauseTest, GrowsFromNothingToFiveSeconds) {
  EXPECT_EQ(RestartPause(1), Duration(0));
  EXPECT_EQ(RestartPause(2), milliseconds(100));
  EXPECT_EQ(RestartPause(3), milliseconds(200));
  EXPECT_EQ(RestartPause(100), seconds(5));
}

TEST(StatesTest, RoundTripAndRefusal) {
  ASSERT_OK_AND_ASSIGN(auto states, ParseStates(SerializeStates({{"a", 1, 2, 3, "signal 9"}})));
  ASSERT_EQ(states.size(), 1u);
  EXPECT_EQ(states[0].name, "a");
  EXPECT_EQ(states[0].restarts, 3);
  EXPECT_EQ(states[0].last_exit, "signal 9");
  for (const char* bad : {"", "{", "[]", R"({"roles": [1]})", R"({"roles": [{"name": 1}]})"}) {
    EXPECT_THAT(ParseStates(bad), HasCode(Code::kInvalidArgument)) << bad;
  }
}

TEST(StartTicksTest, KnowsLiveProcessesOnly) {
  EXPECT_GT(StartTicks(getpid()), 0);
  EXPECT_EQ(StartTicks(0x3ffffff), 0);
}

TEST(SupervisorTest, F15_ARoleHasTheEnvironmentThatItIsGiven) {
  setenv("AWS_SECRET_ACCESS_KEY", "canary", 1);
  ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Create(TestDir() + "/environment.json"));
  Role without = Shell("without", "env; exec sleep 1000");
  without.environment = {"PATH=/usr/bin:/bin", "KEPT=1"};
  ASSERT_OK(supervisor->Start({Shell("with", "env; exec sleep 1000"), without}));
  const auto deadline = Clock::Real()->Now() + seconds(20);
  auto log = [](const char* name) { return TailOf(TestDir() + "/" + name + ".log", 1000); };
  while (log("without").find("KEPT=1") == std::string::npos ||
         log("with").find("canary") == std::string::npos) {
    ASSERT_LT(Clock::Real()->Now(), deadline);
    std::this_thread::sleep_for(milliseconds(5));
  }
  EXPECT_EQ(log("without").find("canary"), std::string::npos);
  supervisor->Stop();
  unsetenv("AWS_SECRET_ACCESS_KEY");
}

TEST(SupervisorTest, RestartsStopsAndReportsConfigurationErrors) {
  ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Create(TestDir() + "/roles.json"));
  ASSERT_OK(supervisor->Start({Shell("steady", "exec sleep 1000"), Shell("brief", "exit 1")}));
  pid_t steady = supervisor->states()[0].pid;
  MonotonicTime deadline = Clock::Real()->Now() + seconds(20);
  while (supervisor->states()[1].restarts < 2) {
    ASSERT_LT(Clock::Real()->Now(), deadline);
    ASSERT_OK(supervisor->Watch(milliseconds(500), -1));
  }
  EXPECT_EQ(supervisor->states()[0].pid, steady);
  EXPECT_EQ(supervisor->states()[1].last_exit, "exit code 1");
  supervisor->Stop();
  EXPECT_EQ(StartTicks(steady), 0);

  ASSERT_OK(supervisor->Start({Shell("bad", "echo flag --x is wrong; exit 2")}));
  Status status;
  while (status.ok()) {
    ASSERT_LT(Clock::Real()->Now(), deadline);
    status = supervisor->Watch(milliseconds(500), -1);
  }
  EXPECT_THAT(status, HasCode(Code::kFailedPrecondition));
  EXPECT_THAT(status, MessageHas("flag --x is wrong"));
}

TEST(SupervisorTest, ARoleThatCannotStartAgainEndsNoOther) {
  const std::string mark = TestDir() + "/started-once";
  std::filesystem::remove(mark);
  // The first start ends with 1, later ones as if the configuration had become wrong.
  Role role = Shell("worse", "test -e " + mark + " && exit 2; touch " + mark + "; exit 1");
  ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Create(TestDir() + "/worse.json"));
  ASSERT_OK(supervisor->Start({Shell("steady", "exec sleep 1000"), role}));
  pid_t steady = supervisor->states()[0].pid;
  MonotonicTime deadline = Clock::Real()->Now() + seconds(20);
  auto wait_for = [&](int restarts) {
    while (supervisor->states()[1].restarts < restarts && Clock::Real()->Now() < deadline) {
      ASSERT_OK(supervisor->Watch(milliseconds(500), -1));
    }
  };
  wait_for(3);
  EXPECT_EQ(supervisor->states()[1].last_exit, "exit code 2");
  // Nor does a log file that cannot be opened.
  std::filesystem::remove(role.log_path);
  std::filesystem::create_directory(role.log_path);
  wait_for(5);
  EXPECT_NE(supervisor->states()[1].last_exit.find("open log"), std::string::npos);
  EXPECT_EQ(supervisor->states()[0].pid, steady);
  supervisor->Stop();
  std::filesystem::remove(role.log_path);
}

TEST(SupervisorTest, WhatADeadRoleLeftIsRemovedAtTheStop) {
  const std::string left = TestDir() + "/left-behind", starts = TestDir() + "/starts";
  std::ofstream(left).close();
  std::ofstream(starts).close();
  // Ends twice, then sweeps and waits for the signal that was blocked at its start.
  const std::string script = fmt::format(
      "import os, signal, sys\n"
      "open('{0}', 'a').write('x')\n"
      "if os.path.getsize('{0}') < 3: sys.exit(1)\n"
      "os.remove('{1}')\n"
      "signal.sigwait([signal.SIGTERM])\n",
      starts, left);
  Role role{"sweeper", {"/usr/bin/python3", "-c", script}, TestDir() + "/sweeper.log", seconds(20)};
  role.sweeps_at_start = true;
  ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Create(TestDir() + "/sweeper.json"));
  ASSERT_OK(supervisor->Start({role}));
  MonotonicTime deadline = Clock::Real()->Now() + seconds(20);
  while (supervisor->states()[0].restarts < 2 && Clock::Real()->Now() < deadline) {
    ASSERT_OK(supervisor->Watch(milliseconds(500), -1));
  }
  ASSERT_EQ(supervisor->states()[0].pid, 0) << "it waits for its next start";
  supervisor->Stop();
  EXPECT_FALSE(std::filesystem::exists(left));
  EXPECT_EQ(supervisor->states()[0].last_exit, "exit code 0");
}

TEST(SupervisorTest, EndsWhatAKilledSupervisorLeft) {
  std::string state = TestDir() + "/left.json";
  ASSERT_OK_AND_ASSIGN(os::Process left, os::Spawn({"/bin/sleep", "1000"}));
  std::ofstream(state) << SerializeStates(
      {{"left", left.pid(), StartTicks(left.pid()), 0, ""}, {"recycled", getpid(), 1, 0, ""}});
  ASSERT_OK_AND_ASSIGN(auto supervisor, Supervisor::Create(state));
  supervisor->EndLeftovers();
  ASSERT_OK_AND_ASSIGN(os::ExitStatus status, left.Wait(Clock::Real()->Now() + seconds(5)));
  EXPECT_EQ(status.signal, SIGTERM);
}

}  // namespace
}  // namespace torpor::up
