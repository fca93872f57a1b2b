#include "os/fs/remove.h"

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/fs/testing/temp_dir.h"

namespace torpor::os {
namespace {

TEST(RemoveTest, LinksAreRemovedAndNotFollowed) {
  TempDir outside;
  ASSERT_OK(outside.dir().WriteFile("keep", "x", 0600));
  TempDir temp;
  ASSERT_OK(temp.dir().MkdirExclusive("t", 0755));
  ASSERT_EQ(symlink(outside.path().c_str(), (temp.path() + "/t/link").c_str()), 0);
  ASSERT_EQ(symlink((outside.path() + "/keep").c_str(), (temp.path() + "/t/file").c_str()), 0);
  ASSERT_EQ(symlink(outside.path().c_str(), (temp.path() + "/top").c_str()), 0);
  ASSERT_OK(RemoveTree(temp.dir(), "t"));
  ASSERT_OK(RemoveTree(temp.dir(), "top"));
  EXPECT_TRUE(outside.dir().Exists("keep"));
  EXPECT_TRUE(temp.dir().List()->empty());
}

TEST(RemoveTest, NamesThatAreNoNamesAreRefused) {
  TempDir temp;
  for (std::string_view name : {"", ".", "..", "a/b", "/"}) {
    EXPECT_THAT(RemoveTree(temp.dir(), name), HasCode(Code::kInvalidArgument)) << name;
  }
  EXPECT_OK(RemoveTree(temp.dir(), "missing"));
}

TEST(RemoveTest, ATreeWithoutPermissionsGoes) {
  TempDir temp;
  ASSERT_OK(temp.dir().MkdirExclusive("t", 0755));
  ASSERT_OK(temp.dir().MkdirExclusive("t/d", 0755));
  ASSERT_OK(temp.dir().WriteFile("t/d/f", "x", 0400));
  ASSERT_EQ(chmod((temp.path() + "/t/d").c_str(), 0), 0);
  EXPECT_OK(RemoveTree(temp.dir(), "t"));
  EXPECT_FALSE(temp.dir().Exists("t"));
}

// Deeper than descriptors would last.
TEST(RemoveTest, ATreeOfAnyDepthGoes) {
  TempDir temp;
  ASSERT_OK(temp.dir().MkdirExclusive("t", 0755));
  ASSERT_OK(temp.dir().MkdirExclusive("t/.deep-1", 0755));
  ASSERT_OK_AND_ASSIGN(DirFd at, temp.dir().OpenDir("t"));
  for (int i = 0; i < 1200; ++i) {
    ASSERT_OK(at.MkdirExclusive("d", 0755));
    ASSERT_OK_AND_ASSIGN(at, at.OpenDir("d"));
  }
  ASSERT_OK(at.WriteFile("f", "x", 0600));
  EXPECT_OK(RemoveTree(temp.dir(), "t"));
  EXPECT_FALSE(temp.dir().Exists("t"));
}

TEST(RemoveTest, AMountIsNeverCrossed) {
  TempDir outside;
  ASSERT_OK(outside.dir().WriteFile("keep", "x", 0600));
  TempDir temp;
  ASSERT_OK(temp.dir().MkdirExclusive("t", 0755));
  ASSERT_OK(temp.dir().MkdirExclusive("t/a", 0755));
  ASSERT_OK(temp.dir().MkdirExclusive("t/volume", 0755));
  std::string at = temp.path() + "/t/volume";
  if (mount(outside.path().c_str(), at.c_str(), nullptr, MS_BIND, nullptr) != 0) {
    GTEST_SKIP() << "needs the right to mount";
  }
  EXPECT_THAT(RemoveTree(temp.dir(), "t"), HasReason(Code::kUnavailable, "VOLUME_BUSY"));
  EXPECT_TRUE(outside.dir().Exists("keep"));
  EXPECT_FALSE(temp.dir().Exists("t/a"));
  ASSERT_EQ(umount2(at.c_str(), MNT_DETACH), 0);
  EXPECT_OK(RemoveTree(temp.dir(), "t"));
}

TEST(RemoveTest, RetireFreesTheNameAndSweepRemoves) {
  TempDir temp;
  FakeClock clock;
  for (int i = 0; i < 3; ++i) {
    ASSERT_OK(temp.dir().MkdirExclusive("state", 0755));
    ASSERT_OK(Retire(temp.dir(), "state", clock.WallNow()));
  }
  EXPECT_OK(Retire(temp.dir(), "missing", clock.WallNow()));
  EXPECT_FALSE(temp.dir().Exists("state"));
  EXPECT_EQ(temp.dir().List()->size(), 3U);
  ASSERT_OK(temp.dir().MkdirExclusive("other", 0755));
  ASSERT_OK(SweepRetired(temp.dir()));
  EXPECT_EQ(temp.dir().List()->size(), 1U);
}

}  // namespace
}  // namespace torpor::os
