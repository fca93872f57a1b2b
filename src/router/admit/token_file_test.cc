#include "router/admit/token_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "base/testing/matchers.h"

namespace torpor::router {
namespace {

using ::testing::Not;

// sha256 of "foo", "bar" and "baz".
constexpr char kFoo[] = "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae";
constexpr char kBar[] = "fcde2b2edba56bf408601fb721fe9b5c338d10ee429ea04fae5511b68fbf8fb9";
constexpr char kBaz[] = "baa5a0964d3320fbc0c6a922140453c8513ea24ab8fd0577034804a967248096";

TEST(TokenLinesTest, SayWhoMayReachWhat) {
  std::string text = "# who\n\n" + std::string(kFoo) + "\tdemo  # alice\r\n  " + kBar + " *";
  ASSERT_OK_AND_ASSIGN(std::vector<TokenLine> lines, ParseTokenLines(text));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0].atespace, "demo");
  EXPECT_EQ(lines[0].sha256[0], 0x2c);
  EXPECT_EQ(lines[0].sha256[31], 0xae);
  EXPECT_EQ(lines[1].atespace, "*");
  EXPECT_TRUE(ParseTokenLines("")->empty());
}

TEST(TokenLinesTest, MistakesNameTheLineAndKeepItsSecret) {
  std::string foo = kFoo;
  std::string upper = foo;
  upper[3] = 'B';
  for (const std::string& bad : {std::string("hunter2 demo"), foo, foo + " ", foo + " Demo",
                                 foo + " a/b", foo + " demo more", foo.substr(1) + " demo",
                                 foo + "0 demo", upper + " demo", "demo " + foo, foo + " **"}) {
    auto lines = ParseTokenLines("\n# x\n" + bad + "\n");
    EXPECT_THAT(lines.status(), HasCode(Code::kInvalidArgument)) << bad;
    EXPECT_THAT(lines.status(), MessageHas("line 3: ")) << bad;
    EXPECT_THAT(lines.status(), Not(MessageHas("hunter2")));
  }
  std::string many;
  for (size_t i = 0; i < kTokenLinesMax; ++i) many += foo + " demo\n";
  EXPECT_OK(ParseTokenLines(many).status());
  EXPECT_THAT(ParseTokenLines(many + foo + " demo").status(), HasCode(Code::kInvalidArgument));
}

class TokenFileTest : public ::testing::Test {
 protected:
  TokenFileTest() {
    char name[] = "/tmp/router-tokens-XXXXXX";
    EXPECT_NE(mkdtemp(name), nullptr);
    dir_ = name;
    path_ = dir_ + "/tokens";
  }
  ~TokenFileTest() override {
    unlink(path_.c_str());
    rmdir(dir_.c_str());
  }
  void Write(const std::string& text) {
    std::ofstream(path_) << text;
    ASSERT_EQ(chmod(path_.c_str(), 0600), 0);
  }
  void Open() {
    auto file = TokenFile::Open(path_);
    ASSERT_OK(file.status());
    file_ = *std::move(file);
  }
  static RequestHead HeadWith(const std::vector<std::string_view>& values) {
    RequestHead head;
    head.fields.push_back(Field{"Authorization", "Bearer foo", FieldId::kOther});
    for (std::string_view value : values) {
      head.fields.push_back(Field{"Torpor-Authorization", value, FieldId::kReserved});
    }
    return head;
  }
  std::string Answer(const std::vector<std::string_view>& values, const std::string& atespace) {
    auto denial = file_->Authorize(HeadWith(values), ActorKey{atespace, "a"});
    if (!denial) return "allowed";
    return denial->known ? "not allowed" : "unknown";
  }

  std::string dir_;
  std::string path_;
  std::unique_ptr<TokenFile> file_;
};

TEST_F(TokenFileTest, ATokenReachesItsAtespacesOnly) {
  Write(std::string(kFoo) + " demo\n" + kFoo + " other\n" + kBar + " *\n");
  Open();
  struct {
    std::vector<std::string_view> values;
    const char* atespace;
    const char* answer;
  } cases[] = {
      {{"Bearer foo"}, "demo", "allowed"},
      {{"Bearer foo"}, "other", "allowed"},
      {{"bearer  foo"}, "demo", "allowed"},
      {{"Bearer foo"}, "third", "not allowed"},
      {{"Bearer bar"}, "third", "allowed"},
      {{"Bearer baz"}, "demo", "unknown"},
      {{}, "demo", "unknown"},
      {{""}, "demo", "unknown"},
      {{"Bearer"}, "demo", "unknown"},
      {{"Bearer "}, "demo", "unknown"},
      {{"Basic foo"}, "demo", "unknown"},
      {{"foo"}, "demo", "unknown"},
      {{"Bearerfoo"}, "demo", "unknown"},
      {{"Bearer foo bar"}, "demo", "unknown"},
      {{"Bearer Foo"}, "demo", "unknown"},
      {{"Bearer fo"}, "demo", "unknown"},
      {{"Bearer foo", "Bearer bar"}, "demo", "unknown"},
      {{kFoo}, "demo", "unknown"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Answer(c.values, c.atespace), c.answer)
        << ::testing::PrintToString(c.values) << " " << c.atespace;
  }
}

TEST_F(TokenFileTest, AnEmptyFileAllowsNobody) {
  Write("");
  Open();
  EXPECT_EQ(Answer({"Bearer foo"}, "demo"), "unknown");
}

TEST_F(TokenFileTest, ANewVersionIsTakenOver) {
  Write(std::string(kFoo) + " demo\n");
  Open();
  // Of the same size and so fast that the time of the change need not differ.
  for (int i = 0; i < 50; ++i) {
    const bool bar = i % 2 == 0;
    Write(std::string(bar ? kBar : kFoo) + " demo\n");
    file_->Refresh();
    ASSERT_EQ(Answer({"Bearer foo"}, "demo"), bar ? "unknown" : "allowed") << i;
    ASSERT_EQ(Answer({"Bearer bar"}, "demo"), bar ? "allowed" : "unknown") << i;
  }
}

TEST_F(TokenFileTest, AWrongOrMissingVersionIsNot) {
  Write(std::string(kFoo) + " demo\n");
  Open();
  Write(std::string(kBar) + " demo\nbaz demo\n");
  file_->Refresh();
  EXPECT_EQ(Answer({"Bearer foo"}, "demo"), "allowed");
  EXPECT_EQ(Answer({"Bearer bar"}, "demo"), "unknown");
  unlink(path_.c_str());
  file_->Refresh();
  EXPECT_EQ(Answer({"Bearer foo"}, "demo"), "allowed");
  Write(std::string(kBaz) + " demo\n");
  file_->Refresh();
  EXPECT_EQ(Answer({"Bearer foo"}, "demo"), "unknown");
  EXPECT_EQ(Answer({"Bearer baz"}, "demo"), "allowed");
}

TEST_F(TokenFileTest, WhatCannotBeTrustedIsRefused) {
  EXPECT_THAT(TokenFile::Open(path_).status(), HasCode(Code::kInvalidArgument)) << "missing";
  EXPECT_THAT(TokenFile::Open(dir_).status(), HasCode(Code::kInvalidArgument)) << "a directory";
  Write("baz demo\n");
  EXPECT_THAT(TokenFile::Open(path_).status(), MessageHas("line 1"));
  EXPECT_THAT(TokenFile::Open(path_).status(), MessageHas(path_));
  Write(std::string(kFoo) + " demo\n");
  for (mode_t mode : {0620u, 0602u, 0666u}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_THAT(TokenFile::Open(path_).status(), MessageHas("chmod go-w")) << mode;
  }
  for (mode_t mode : {0600u, 0640u, 0644u}) {
    ASSERT_EQ(chmod(path_.c_str(), mode), 0);
    EXPECT_OK(TokenFile::Open(path_).status()) << mode;
  }
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(path_.c_str(), 12345, 0), 0);
  EXPECT_THAT(TokenFile::Open(path_).status(), MessageHas("belongs to"));
}

}  // namespace
}  // namespace torpor::router
