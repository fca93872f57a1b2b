#include "runtime/gvisor/probe.h"

#include <fcntl.h>
#include <sched.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "base/unique_fd.h"

namespace torpor::gvisor {
namespace {

std::string Recorded(const std::string& version, const std::string& name) {
  std::ifstream file(std::string(TORPOR_SOURCE_DIR) + "/src/runtime/gvisor/testdata/runsc-" +
                     version + "/" + name);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

RunscFeatures Parse(const std::string& version) {
  return ParseRunscTexts({Recorded(version, "version"), Recorded(version, "flags"),
                          Recorded(version, "help_checkpoint"), Recorded(version, "help_restore"),
                          Recorded(version, "help_fscheckpoint"),
                          Recorded(version, "help_platforms")});
}

TEST(Probe, BookwormBackports) {
  RunscFeatures f = Parse("20240729");
  EXPECT_EQ(f.version, "0.0~20240729.0");
  EXPECT_THAT(f.Missing(), testing::IsEmpty());
  EXPECT_THAT(f.checkpoint_flags,
              testing::UnorderedElementsAre("compression", "direct", "exclude-committed-zero-pages",
                                            "image-path", "leave-running", "work-path"));
  EXPECT_EQ(f.restore_flags.count("direct"), 1u);
  EXPECT_EQ(f.flags.count("cpu-num-from-quota"), 1u);
  EXPECT_EQ(f.flags.count("net-disconnect-ok"), 1u);
  EXPECT_THAT(f.platforms, testing::UnorderedElementsAre("ptrace", "kvm", "systrap"));
  EXPECT_FALSE(f.fs_checkpoint);
}

TEST(Probe, BookwormIsTooOldAndSaysWhy) {
  RunscFeatures f = Parse("20221219");
  EXPECT_EQ(f.version, "0.0~20221219.0");
  EXPECT_THAT(f.Missing(), testing::ElementsAre("--net-disconnect-ok", "checkpoint -compression"));
  EXPECT_EQ(f.restore_flags.count("direct"), 0u);
  EXPECT_THAT(f.platforms, testing::UnorderedElementsAre("ptrace", "kvm"));
}

TEST(Probe, NewerRelease) {
  RunscTexts texts;
  texts.version = "runsc version release-20260622.0\nspec: 1.2.0\n";
  texts.help_fscheckpoint = "fscheckpoint [flags] <container id> - save file systems\n";
  texts.help_restore =
      "restore [flags] <container id> - restore.  -background\n    \tload pages later\n"
      "  -direct\n";
  RunscFeatures f = ParseRunscTexts(texts);
  EXPECT_EQ(f.version, "release-20260622.0");
  EXPECT_TRUE(f.fs_checkpoint);
  EXPECT_THAT(f.restore_flags, testing::UnorderedElementsAre("background", "direct"));
}

TEST(Probe, AnotherProgramIsNoRunsc) {
  MonotonicTime soon = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  EXPECT_THAT(ProbeRunsc("/bin/true", soon), HasCode(Code::kFailedPrecondition));
  EXPECT_THAT(ProbeRunsc("/nonexistent/runsc", soon), HasCode(Code::kNotFound));
}

TEST(Probe, CpuFeatures) {
  EXPECT_THAT(ParseCpuFeatures("processor: 0\nflags\t\t: fpu avx2 aes\nbugs: x\nflags: other\n"),
              testing::ElementsAre("aes", "avx2", "fpu"));
  EXPECT_THAT(ParseCpuFeatures("flags\t: avx2 rep_good nopl constant_tsc up zen acc_power aes\n"),
              testing::ElementsAre("aes", "avx2"));
  EXPECT_THAT(ParseCpuFeatures("Features\t: fp asimd\n"), testing::ElementsAre("asimd", "fp"));
  EXPECT_THAT(ParseCpuFeatures("nothing"), testing::IsEmpty());
}

TEST(ScratchNetns, CanBeEnteredWhileItLives) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  ASSERT_OK_AND_ASSIGN(auto netns, ScratchNetns::Create());
  bool entered = false;
  std::thread([&] {
    UniqueFd fd(open(netns->path().c_str(), O_RDONLY | O_CLOEXEC));
    entered = setns(fd.get(), CLONE_NEWNET) == 0;
  }).join();
  EXPECT_TRUE(entered);
  std::string path = netns->path();
  netns.reset();
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

}  // namespace
}  // namespace torpor::gvisor
