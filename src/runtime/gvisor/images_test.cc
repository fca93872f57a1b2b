#include "runtime/gvisor/images.h"

#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "base/uuid.h"

namespace torpor::gvisor {
namespace {

TEST(UseDirect, Table) {
  struct Case {
    DirectInput input;
    bool expected;
  };
  for (const Case& c : std::vector<Case>{{{true, true, 0}, true},
                                         {{true, true, 0.89}, true},
                                         {{true, true, 0.9}, false},
                                         {{true, true, 1}, false},
                                         {{false, true, 0}, false},
                                         {{true, false, 0}, false}}) {
    EXPECT_EQ(UseDirect(c.input), c.expected)
        << c.input.flag << ' ' << c.input.file_system << ' ' << c.input.cached;
  }
}

class ImagesTest : public testing::Test {
 protected:
  ImagesTest() : directory_("/tmp/torpor-images-" + RandomHex(6)) {
    std::filesystem::create_directories(directory_);
  }
  ~ImagesTest() override { std::filesystem::remove_all(directory_); }
  void Write(const std::string& name, const std::string& content) {
    std::ofstream(directory_ + "/" + name, std::ios::binary) << content;
  }
  const std::string directory_;
};

const std::string kState = std::string("\x67\x56\x69\x73\x6f\x72\x53\x46") + "rest";

TEST_F(ImagesTest, ListsAndChecks) {
  Write("checkpoint.img", kState);
  Write("pages.img", std::string(10000, 'p'));
  ASSERT_OK_AND_ASSIGN(auto files, ListImage(directory_));
  ASSERT_EQ(files.size(), 2u);
  EXPECT_EQ(files[0].name(), "checkpoint.img");
  EXPECT_EQ(files[1].name(), "pages.img");
  EXPECT_EQ(files[1].logical_bytes(), 10000);
  EXPECT_EQ(files[1].populated_bytes(), 10000);
  EXPECT_OK(CheckImage(directory_, files));

  Write("pages.img", "short");
  EXPECT_THAT(CheckImage(directory_, files), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  std::filesystem::remove(directory_ + "/pages.img");
  EXPECT_THAT(CheckImage(directory_, files), MessageHas("pages.img: is missing"));
  std::filesystem::create_symlink("/etc/passwd", directory_ + "/pages.img");
  EXPECT_THAT(CheckImage(directory_, files), MessageHas("not a regular file"));
}

TEST_F(ImagesTest, HolesAreNotPopulated) {
  Write("checkpoint.img", kState);
  ASSERT_EQ(truncate((directory_ + "/checkpoint.img").c_str(), 1 << 20), 0);
  ASSERT_OK_AND_ASSIGN(auto files, ListImage(directory_));
  EXPECT_EQ(files[0].logical_bytes(), 1 << 20);
  EXPECT_LE(files[0].populated_bytes(), 8192);
}

TEST_F(ImagesTest, WhatIsNoImageIsRefused) {
  EXPECT_THAT(ListImage(directory_), HasReason(Code::kInternal, "INVALID_CHECKPOINT_RESULT"));
  Write("checkpoint.img", "");
  EXPECT_THAT(ListImage(directory_), HasReason(Code::kInternal, "INVALID_CHECKPOINT_RESULT"));
  EXPECT_THAT(CheckImage(directory_, {}), HasReason(Code::kDataLoss, "SNAPSHOT_CORRUPT"));
  Write("checkpoint.img", "something else");
  EXPECT_THAT(CheckImage(directory_, {}), MessageHas("does not begin like a saved state"));
  Write("checkpoint.img", kState);
  std::filesystem::create_directory(directory_ + "/sub");
  EXPECT_THAT(ListImage(directory_), HasReason(Code::kInternal, "INVALID_CHECKPOINT_RESULT"));
}

TEST_F(ImagesTest, CachedFraction) {
  EXPECT_EQ(CachedFraction(directory_ + "/missing"), 0);
  Write("pages.img", "");
  EXPECT_EQ(CachedFraction(directory_ + "/pages.img"), 0);
  Write("pages.img", std::string(1 << 20, 'p'));
  EXPECT_GE(CachedFraction(directory_ + "/pages.img"), 0.99) << "just written, so cached";
}

TEST_F(ImagesTest, DirectSupportIsAskedOfTheFileSystem) {
  EXPECT_FALSE(SupportsDirect("/proc", true));
  EXPECT_FALSE(SupportsDirect(directory_, false)) << "no pages file";
  EXPECT_FALSE(IsFull(directory_));
  EXPECT_FALSE(IsFull(directory_ + "/missing"));
}

}  // namespace
}  // namespace torpor::gvisor
