#include "model/names.h"

#include <string>

#include <gtest/gtest.h>

namespace torpor {
namespace {

TEST(Names, Label) {
  for (const char* good : {"a", "a-b", "0", "counter-1"}) EXPECT_TRUE(IsLabel(good)) << good;
  for (const char* bad : {"", "-a", "a-", "A", "a.b", "a/b", "..", "a b", "\xc3\xa4", "a_b"}) {
    EXPECT_FALSE(IsLabel(bad)) << bad;
  }
  EXPECT_TRUE(IsLabel(std::string(63, 'a')));
  EXPECT_FALSE(IsLabel(std::string(64, 'a')));
  EXPECT_FALSE(IsLabel(std::string_view("a\0b", 3)));
}

TEST(Names, Subdomain) {
  EXPECT_TRUE(IsSubdomain("a.b-c.d"));
  for (const char* bad : {"", ".a", "a.", "a..b", "A.b"}) EXPECT_FALSE(IsSubdomain(bad)) << bad;
  EXPECT_FALSE(IsSubdomain(std::string(254, 'a')));
}

TEST(Names, SnapshotFile) {
  for (const char* good : {"pages.img", "volume-a.tar", "dir/name.img"}) {
    EXPECT_TRUE(IsSnapshotFileName(good)) << good;
  }
  for (const char* bad : {"", "..", "../x", "/etc/passwd", "a/b/c", "a/", "/a", "a//b", ".hidden",
                          "a/.b", "a b", "a\nb"}) {
    EXPECT_FALSE(IsSnapshotFileName(bad)) << bad;
  }
}

TEST(Names, CleanRelativePath) {
  EXPECT_TRUE(IsCleanRelativePath("a/b.c/_d"));
  for (const char* bad : {"", "/a", "a/", "a//b", "..", "a/../b", "./a", "a/."}) {
    EXPECT_FALSE(IsCleanRelativePath(bad)) << bad;
  }
  EXPECT_FALSE(IsCleanRelativePath(std::string_view("a\0b", 3)));
}

TEST(Names, LabelsKeysAndDigests) {
  EXPECT_TRUE(IsLabelKey("ate.dev/Work_load"));
  EXPECT_TRUE(IsLabelKey("workload"));
  EXPECT_FALSE(IsLabelKey("/x"));
  EXPECT_FALSE(IsLabelKey("a/b/c"));
  EXPECT_TRUE(IsLabelValue(""));
  EXPECT_FALSE(IsLabelValue("-a"));
  std::string digest = "sha256:" + std::string(64, 'a');
  EXPECT_TRUE(IsSha256Digest(digest));
  EXPECT_FALSE(IsSha256Digest(digest + "0"));
  EXPECT_FALSE(IsSha256Digest("sha256:" + std::string(64, 'A')));
  EXPECT_FALSE(IsSha256Digest("sha512:" + std::string(64, 'a')));
}

TEST(NearestLabel, L6_KeepsWhatItCan) {
  EXPECT_EQ(NearestLabel("Upper Case_1"), "upper-case-1");
  EXPECT_EQ(NearestLabel("../etc"), "etc");
  EXPECT_EQ(NearestLabel("--"), "");
  EXPECT_EQ(NearestLabel("a-"), "a");
  EXPECT_EQ(NearestLabel(std::string(100, 'X')), std::string(63, 'x'));
  for (const char* text : {"Upper", "a b", "-x-", "9"}) EXPECT_TRUE(IsLabel(NearestLabel(text)));
}

}  // namespace
}  // namespace torpor
