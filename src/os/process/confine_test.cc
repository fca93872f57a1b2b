#include "os/process/confine.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/process/process.h"

namespace torpor::os {
namespace {

MonotonicTime Soon() { return std::chrono::steady_clock::now() + std::chrono::seconds(20); }

TEST(LandlockTest, RightsGrowWithTheVersion) {
  EXPECT_EQ(RightsOf(0).handled, 0u);
  uint64_t before = 0;
  for (int version = 1; version <= 9; ++version) {
    LandlockRights rights = RightsOf(version);
    EXPECT_EQ(rights.handled & before, before) << version;
    EXPECT_EQ(rights.read & ~rights.handled, 0u) << version;
    EXPECT_EQ(rights.file & ~rights.handled, 0u) << version;
    EXPECT_EQ(rights.network != 0, version >= 4);
    EXPECT_EQ(rights.scoped != 0, version >= 6);
    before = rights.handled;
  }
  EXPECT_EQ(RightsOf(1).handled, 0x1fffu);
  EXPECT_EQ(RightsOf(2).handled, 0x3fffu);
  EXPECT_EQ(RightsOf(5).handled, 0xffffu);
  EXPECT_EQ(RightsOf(9).handled, RightsOf(6).handled) << "what is not known is not asked for";
  EXPECT_EQ(RightsOf(5).read, 0xdu) << "to read is not to write";
}

TEST(LandlockTest, WithoutItAConfinedChildIsNotStarted) {
  if (LandlockVersion() >= kLandlockMin) GTEST_SKIP() << "this kernel has Landlock";
  SpawnOptions options;
  options.confinement = Confinement{};
  EXPECT_THAT(Spawn({"true"}, options), HasCode(Code::kUnimplemented));
}

// One directory to write to, one to read from, and one beside them.
class ConfineTest : public testing::Test {
 protected:
  void SetUp() override {
    if (LandlockVersion() < kLandlockMin) GTEST_SKIP() << "this kernel has no Landlock";
    char name[] = "/tmp/confine-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    top_ = name;
    for (const char* part : {"out", "out/a", "out/b", "in", "else"}) {
      ASSERT_EQ(mkdir((top_ + "/" + part).c_str(), 0755), 0);
    }
    for (const char* part : {"in/file", "else/file", "out/file"}) {
      std::ofstream(top_ + "/" + part) << "text";
    }
  }
  void TearDown() override {
    if (!top_.empty()) std::filesystem::remove_all(top_);
  }
  Status Run(const std::string& script) {
    CommandOptions options{.deadline = Soon()};
    options.cwd = top_;
    options.confinement = Confinement{
        .read = {top_ + "/in", "/usr", "/bin", "/lib", "/lib64", "/etc/ld.so.cache", "/not/there"},
        .write = {top_ + "/out"}};
    return CommandOutput({"sh", "-c", script}, options).status();
  }
  bool Exists(const std::string& path) { return access((top_ + "/" + path).c_str(), F_OK) == 0; }

  std::string top_;
};

TEST_F(ConfineTest, WritesOnlyBelowItsTarget) {
  EXPECT_OK(
      Run("echo x > out/new && mkdir out/c && mv out/new out/c/ && rm out/file && cat in/file"));
  EXPECT_TRUE(Exists("out/c/new"));
  EXPECT_FALSE(Run("echo x > else/new").ok());
  EXPECT_FALSE(Run("echo x > out/../else/new").ok());
  EXPECT_FALSE(Run("ln -s ../else out/link && echo x > out/link/new").ok());
  EXPECT_FALSE(Run("echo x >> else/file").ok());
  EXPECT_FALSE(Run("rm -f in/file").ok());
  EXPECT_FALSE(Run("mkdir in/new").ok());
  EXPECT_FALSE(Run("mv out/c else/c").ok());
  EXPECT_FALSE(Exists("else/new"));
  EXPECT_FALSE(Exists("else/c"));
  EXPECT_TRUE(Exists("in/file"));
}

TEST_F(ConfineTest, ReadsOnlyItsSource) {
  EXPECT_OK(Run("cat in/file > out/copy"));
  EXPECT_FALSE(Run("cat else/file").ok());
  EXPECT_FALSE(Run("cat /etc/passwd").ok());
  EXPECT_FALSE(Run("ln else/file out/stolen").ok()) << "nor by a link";
  EXPECT_FALSE(Exists("out/stolen"));
}

TEST_F(ConfineTest, LinksInsideTheTargetWork) {
  EXPECT_OK(Run("echo x > out/a/f && ln out/a/f out/b/f && mv out/a/f out/b/g"));
  EXPECT_TRUE(Exists("out/b/g"));
}

TEST_F(ConfineTest, WeAreNotConfined) {
  EXPECT_OK(Run("true"));
  std::ofstream(top_ + "/else/ours") << "x";
  EXPECT_TRUE(Exists("else/ours"));
  EXPECT_OK(CommandOutput({"sh", "-c", "echo x > " + top_ + "/else/next"}, {Soon()}).status());
}

TEST_F(ConfineTest, WhatCannotBeWrittenToIsAnError) {
  SpawnOptions options;
  options.confinement = Confinement{.read = {}, .write = {top_ + "/none"}};
  EXPECT_THAT(Spawn({"true"}, options), HasCode(Code::kNotFound));
  options.confinement->write.clear();
  EXPECT_THAT(Spawn({"no-such-program"}, options), HasCode(Code::kNotFound));
}

}  // namespace
}  // namespace torpor::os
