// The start helper as a program.

#include "runtime/gvisor/enter.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "os/process/process.h"
#include "runtime/gvisor/errors.h"
#include "runtime/gvisor/probe.h"

namespace torpor::gvisor {
namespace {

class EnterTest : public testing::Test {
 protected:
  EnterTest() : directory_("/tmp/torpor-enter-" + RandomHex(6)) {
    std::filesystem::create_directories(directory_);
  }
  ~EnterTest() override { std::filesystem::remove_all(directory_); }

  os::CommandResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), TORPOR_ENTER);
    auto result = os::RunCommand(
        arguments, {.deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20)});
    EXPECT_OK(result);
    return result.ok() ? *result : os::CommandResult();
  }
  const std::string directory_;
};

TEST_F(EnterTest, RefusesWrongUsage) {
  for (const auto& arguments : std::vector<std::vector<std::string>>{
           {}, {"--"}, {"/bin/true"}, {"--netns"}, {"--wrong", "--", "/bin/true"}}) {
    os::CommandResult result = Run(arguments);
    EXPECT_EQ(result.status.code, kEnterFailed);
    EXPECT_EQ(result.err.substr(0, 6), "usage:");
  }
}

TEST_F(EnterTest, SaysInTheLogWhatFailed) {
  std::string log = directory_ + "/log";
  os::CommandResult result =
      Run({"--log", log, "--procs", directory_ + "/missing", "--", "/bin/true"});
  EXPECT_EQ(result.status.code, kEnterFailed);
  EXPECT_EQ(result.err, "") << "standard error is the container's";
  EXPECT_EQ(LogTail(log, 5),
            "torpor-enter: join cgroup " + directory_ + "/missing: No such file or directory\n");
  if (geteuid() != 0) GTEST_SKIP() << "the rest needs root";
  Run({"--log", log, "--netns", directory_ + "/none", "--", "/bin/true"});
  EXPECT_THAT(LogTail(log, 5), testing::HasSubstr("enter network namespace"));
  Run({"--log", log, "--", "/bin/none"});
  EXPECT_THAT(LogTail(log, 5), testing::HasSubstr("execute /bin/none"));
}

TEST_F(EnterTest, JoinsEntersHidesAndExecutes) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_OK_AND_ASSIGN(auto netns, ScratchNetns::Create());
  std::string procs = directory_ + "/procs";
  std::ofstream(procs).close();
  os::CommandResult result = Run(
      {"--procs", procs, "--netns", netns->path(), "--hide-net-core", "--", "/bin/sh", "-c",
       "readlink /proc/self/ns/net; ls /proc/sys/net/core; grep -c shared: /proc/self/mountinfo"});
  char link[64] = {};
  ASSERT_GT(readlink(netns->path().c_str(), link, sizeof link - 1), 0);
  // Its netns, an empty directory, and no mount that would reach the host.
  EXPECT_EQ(result.out, std::string(link) + "\n0\n") << result.err;
  std::ifstream written(procs);
  std::string joined;
  written >> joined;
  EXPECT_EQ(joined, "0");
}

}  // namespace
}  // namespace torpor::gvisor
