#include "os/fs/usage.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/testing/matchers.h"
#include "os/fs/testing/temp_dir.h"

namespace torpor::os {
namespace {

TEST(UsageTest, CountsBlocksAndInodesAndFollowsNoLink) {
  TempDir temp;
  auto dir = DirFd::OpenPath(temp.path());
  ASSERT_OK(dir);
  ASSERT_OK(dir->MkdirExclusive("tree", 0700));
  ASSERT_OK(dir->MkdirExclusive("tree/sub", 0700));
  ASSERT_OK(dir->WriteFile("tree/sub/file", std::string(100000, 'x'), 0600));
  // A sparse file takes what it takes, not what it is long.
  ASSERT_OK(dir->WriteFile("tree/sparse", "", 0600));
  ASSERT_EQ(truncate((temp.path() + "/tree/sparse").c_str(), int64_t{1} << 40), 0);
  ASSERT_EQ(symlink("/", (temp.path() + "/tree/root").c_str()), 0);
  auto usage = MeasureTree(*dir, "tree");
  ASSERT_OK(usage);
  EXPECT_TRUE(usage->complete);
  EXPECT_EQ(usage->inodes, 5);
  EXPECT_GE(usage->bytes, 100000);
  EXPECT_LT(usage->bytes, 1 << 20);
  EXPECT_THAT(MeasureTree(*dir, "none"), HasCode(Code::kNotFound));
}

TEST(UsageTest, MountPointsAreUnescapedAndAnUnreadableLineIsAnError) {
  auto points = ParseMountPoints(
      "36 35 98:0 /mnt1 /mnt/a\\040b rw,noatime master:1 - ext3 /dev/root rw\n"
      "37 35 0:5 / /proc rw - proc proc rw\n");
  ASSERT_OK(points);
  EXPECT_EQ(*points, (std::vector<std::string>{"/mnt/a b", "/proc"}));
  for (const char* bad : {"36 35 98:0\n", "36 35 98:0 /mnt1 relative rw\n", "\n", "x"}) {
    EXPECT_THAT(ParseMountPoints(bad), HasCode(Code::kDataLoss)) << bad;
  }
  EXPECT_TRUE(ParseMountPoints("")->empty());
}

TEST(UsageTest, MountsBelowSeesItsOwnProc) {
  auto below = MountsBelow("/proc");
  ASSERT_OK(below);
  EXPECT_EQ(std::count(below->begin(), below->end(), "/proc"), 1);
  EXPECT_EQ(std::count(below->begin(), below->end(), "/"), 0);
}

}  // namespace
}  // namespace torpor::os
