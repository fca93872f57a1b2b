// What DirFd::DurableWrite promises, with a disk that keeps only what was flushed.

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "os/fs/dir_fd.h"
#include "os/fs/testing/power_cut.h"
#include "os/fs/testing/temp_dir.h"

namespace torpor::os {
namespace {

std::string AfterCut(const PowerCut& cut, const std::string& file) {
  TempDir found;
  cut.After(found.path());
  return found.dir().ReadFile(file, 1 << 20).value_or("(none)");
}

TEST(DurableWriteTest, SurvivesAPowerCutAndWriteFileDoesNot) {
  TempDir temp;
  PowerCut cut(temp.path());
  ASSERT_OK(temp.dir().DurableWrite("durable", "kept", 0600));
  ASSERT_OK(temp.dir().WriteFile("plain", "lost", 0600));
  EXPECT_EQ(cut.flushes(), 2);  // the file, then its directory
  EXPECT_EQ(AfterCut(cut, "durable"), "kept");
  EXPECT_EQ(AfterCut(cut, "plain"), "(none)");
}

// Whatever flush fails: what was acknowledged is there, whole, and what was not is old or new.
TEST(DurableWriteTest, A10_FsyncErrorIsNeverRetriedAsSuccess) {
  for (int nth = 1; nth <= 2; ++nth) {
    SCOPED_TRACE(nth);
    TempDir temp;
    ASSERT_OK(temp.dir().WriteFile("node.json", "old", 0600));
    PowerCut cut(temp.path());
    cut.FailFlush(nth);
    EXPECT_THAT(temp.dir().DurableWrite("node.json", "new", 0600), HasCode(Code::kInternal));
    EXPECT_EQ(AfterCut(cut, "node.json"), "old");
    // The caller tries again: a new file is written, the one that failed is not trusted.
    ASSERT_OK(temp.dir().DurableWrite("node.json", "new", 0600));
    EXPECT_EQ(AfterCut(cut, "node.json"), "new");
  }
}

}  // namespace
}  // namespace torpor::os
