#include "os/fs/dir_fd.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "base/uuid.h"
#include "os/fs/testing/temp_dir.h"

namespace torpor::os {
namespace {

class DirFdTest : public testing::Test {
 protected:
  TempDir temp_;
  const DirFd& dir_ = temp_.dir();
};

const char* const kHostilePaths[] = {
    "",         "..", "../x", "a/../../x", "/etc/passwd", "link",       "link/file",
    "a/link/x", "/",  "a/..", "dirlink",   "dirlink/f",   "a/dirlink/f"};

TEST_F(DirFdTest, NoHostilePathOpensAnything) {
  ASSERT_OK(dir_.MkdirExclusive("a", 0755));
  ASSERT_EQ(symlink("/etc/passwd", (temp_.path() + "/link").c_str()), 0);
  ASSERT_EQ(symlink("/etc", (temp_.path() + "/dirlink").c_str()), 0);
  ASSERT_EQ(symlink("/etc", (temp_.path() + "/a/link").c_str()), 0);
  ASSERT_EQ(symlink("..", (temp_.path() + "/a/dirlink").c_str()), 0);
  for (const char* path : kHostilePaths) {
    EXPECT_FALSE(dir_.Open(path, O_WRONLY).ok()) << path;
    EXPECT_FALSE(dir_.OpenRegular(path, O_RDONLY).ok()) << path;
    EXPECT_FALSE(dir_.Open(path, O_WRONLY | O_CREAT, 0600).ok()) << path;
    EXPECT_FALSE(dir_.ReadFile(path, 1 << 20).ok()) << path;
    EXPECT_FALSE(dir_.MkdirExclusive(path, 0755).ok()) << path;
    EXPECT_FALSE(dir_.Rename("a", path).ok() && std::string(path) != "link") << path;
  }
}

TEST_F(DirFdTest, NulInPathIsRefused) {
  EXPECT_THAT(dir_.Open(std::string_view("a\0b", 3), O_RDONLY), HasCode(Code::kInvalidArgument));
  EXPECT_THAT(dir_.MkdirExclusive(std::string_view("a\0b", 3), 0755),
              HasCode(Code::kInvalidArgument));
}

TEST_F(DirFdTest, WriteReplacesALinkInsteadOfFollowingIt) {
  TempDir outside;
  ASSERT_OK(outside.dir().WriteFile("target", "mine", 0600));
  ASSERT_EQ(symlink((outside.path() + "/target").c_str(), (temp_.path() + "/f").c_str()), 0);
  ASSERT_OK(dir_.WriteFile("f", "new", 0640));
  EXPECT_EQ(*outside.dir().ReadFile("target", 100), "mine");
  EXPECT_EQ(*dir_.ReadFile("f", 100), "new");
}

TEST_F(DirFdTest, WriteSetsModeWhateverTheUmaskAndLeavesNoTemporaryFile) {
  mode_t before = umask(0777);
  Status status = dir_.WriteFile("f", "x", 0644);
  Status durable = dir_.DurableWrite("g", "y", 0440);
  umask(before);
  ASSERT_OK(status);
  ASSERT_OK(durable);
  EXPECT_EQ(dir_.Stat("f")->st_mode & 07777, 0644U);
  EXPECT_EQ(dir_.Stat("g")->st_mode & 07777, 0440U);
  EXPECT_EQ(dir_.List()->size(), 2U);
}

TEST_F(DirFdTest, FailedWriteKeepsTheOldContent) {
  ASSERT_OK(dir_.MkdirExclusive("taken", 0755));
  EXPECT_FALSE(dir_.WriteFile("taken", "x", 0600).ok());
  EXPECT_EQ(dir_.List()->size(), 1U);
}

TEST_F(DirFdTest, FifoNeitherBlocksNorPassesAsAFile) {
  ASSERT_EQ(mkfifo((temp_.path() + "/fifo").c_str(), 0600), 0);
  EXPECT_THAT(dir_.OpenRegular("fifo", O_RDONLY), HasCode(Code::kFailedPrecondition));
  EXPECT_FALSE(dir_.ReadFile("fifo", 10).ok());
}

TEST_F(DirFdTest, ReadIsBounded) {
  ASSERT_OK(dir_.WriteFile("f", std::string(100, 'x'), 0600));
  EXPECT_OK(dir_.ReadFile("f", 100));
  EXPECT_THAT(dir_.ReadFile("f", 99), HasCode(Code::kResourceExhausted));
}

TEST_F(DirFdTest, RenameNoReplaceKeepsBoth) {
  ASSERT_OK(dir_.MkdirExclusive("a", 0755));
  ASSERT_OK(dir_.MkdirExclusive("b", 0755));
  EXPECT_THAT(dir_.RenameNoReplace("a", "b"), HasCode(Code::kAlreadyExists));
  EXPECT_TRUE(dir_.Exists("a"));
  EXPECT_OK(dir_.RenameNoReplace("a", "b/c"));
  EXPECT_TRUE(dir_.Exists("b/c"));
}

TEST_F(DirFdTest, MkdirExclusiveRefusesADanglingLink) {
  ASSERT_EQ(symlink("nowhere", (temp_.path() + "/d").c_str()), 0);
  EXPECT_THAT(dir_.MkdirExclusive("d", 0755), HasCode(Code::kAlreadyExists));
  EXPECT_FALSE(dir_.MkdirOrOpen("d", 0755).ok());
}

TEST_F(DirFdTest, MkdirOrOpenRepairsTheMode) {
  ASSERT_OK(dir_.MkdirExclusive("d", 0700));
  ASSERT_OK(dir_.MkdirOrOpen("d", 0750));
  EXPECT_EQ(dir_.Stat("d")->st_mode & 07777, 0750U);
}

TEST_F(DirFdTest, ReadInRootFollowsLinksInsideOnly) {
  ASSERT_OK(dir_.MkdirExclusive("etc", 0755));
  ASSERT_OK(dir_.WriteFile("etc/real", "content", 0644));
  ASSERT_EQ(symlink("/etc/real", (temp_.path() + "/etc/absolute").c_str()), 0);
  ASSERT_EQ(symlink("../../../../../etc/passwd", (temp_.path() + "/etc/escape").c_str()), 0);
  EXPECT_EQ(*dir_.ReadFileInRoot("etc/absolute", 100), "content");
  EXPECT_FALSE(dir_.ReadFileInRoot("etc/escape", 1 << 20).ok());
}

TEST_F(DirFdTest, ListIsSortedAndKnowsTypes) {
  ASSERT_OK(dir_.MkdirExclusive("b", 0755));
  ASSERT_OK(dir_.WriteFile("a", "", 0600));
  ASSERT_EQ(symlink("b", (temp_.path() + "/c").c_str()), 0);
  auto entries = *dir_.List();
  ASSERT_EQ(entries.size(), 3U);
  EXPECT_TRUE(entries[0].is_regular);
  EXPECT_TRUE(entries[1].is_directory);
  EXPECT_FALSE(entries[2].is_directory || entries[2].is_regular);
}

TEST_F(DirFdTest, LockIsExclusiveUntilClosed) {
  ASSERT_OK_AND_ASSIGN(UniqueFd lock, LockFile(dir_, "lock"));
  EXPECT_THAT(LockFile(dir_, "lock"), HasCode(Code::kFailedPrecondition));
  lock.Reset();
  EXPECT_OK(LockFile(dir_, "lock"));
}

TEST_F(DirFdTest, SpaceAndBootId) {
  EXPECT_GT(dir_.Space()->total_bytes, 0);
  EXPECT_TRUE(IsUuid(*BootId()));
}

}  // namespace
}  // namespace torpor::os
