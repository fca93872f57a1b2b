#include "api/auth.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/testing/matchers.h"
#include "base/uuid.h"

namespace torpor::api {
namespace {

namespace fs = std::filesystem;

class TokenFileTest : public testing::Test {
 protected:
  TokenFileTest() { fs::create_directories(dir_); }
  ~TokenFileTest() override { fs::remove_all(dir_); }
  void Put(const std::string& text, mode_t mode) {
    std::ofstream(path_) << text;
    chmod(path_.c_str(), mode);
  }
  const fs::path dir_ = "/tmp/api-token-" + RandomHex(8);
  const std::string path_ = dir_ / "token";
};

TEST_F(TokenFileTest, AMissingFileIsMadeOnceAndPrivate) {
  ASSERT_OK_AND_ASSIGN(std::string first, LoadOrMakeToken(path_));
  EXPECT_EQ(first.size(), 64u);
  struct stat st;
  ASSERT_EQ(stat(path_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  ASSERT_OK_AND_ASSIGN(std::string second, LoadOrMakeToken(path_));
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::distance(fs::directory_iterator(dir_), fs::directory_iterator()), 1);
}

TEST_F(TokenFileTest, ReadsWhatIsThere) {
  Put("0123456789abcdef\n", 0600);
  EXPECT_THAT(LoadOrMakeToken(path_), testing::Property(&StatusOr<std::string>::ok, true));
  EXPECT_EQ(*LoadOrMakeToken(path_), "0123456789abcdef");
}

TEST_F(TokenFileTest, RefusesUnusableFiles) {
  Put("0123456789abcdef\n", 0644);
  EXPECT_THAT(LoadOrMakeToken(path_), HasCode(Code::kFailedPrecondition));
  Put("short\n", 0600);
  EXPECT_THAT(LoadOrMakeToken(path_), HasCode(Code::kFailedPrecondition));
  Put("0123456789 abcdef\n", 0600);
  EXPECT_THAT(LoadOrMakeToken(path_), HasCode(Code::kFailedPrecondition));
  Put("", 0600);
  EXPECT_THAT(LoadOrMakeToken(path_), HasCode(Code::kFailedPrecondition));
  EXPECT_THAT(LoadOrMakeToken(dir_ / "no" / "token"), HasCode(Code::kNotFound));
}

TEST_F(TokenFileTest, FollowsNoLink) {
  Put("0123456789abcdef\n", 0600);
  const std::string link = dir_ / "link";
  fs::create_symlink(path_, link);
  EXPECT_FALSE(LoadOrMakeToken(link).ok());
}

}  // namespace
}  // namespace torpor::api
