#include "agent/log_reader.h"

#include <fcntl.h>
#include <unistd.h>

#include <fmt/format.h>

#include "agent/testing/test_node.h"

namespace torpor::agent {
namespace {

using torpor::v1::LogLine;
using torpor::v1::ReadLogsRequest;

std::string Line(int second, const std::string& container, const std::string& text) {
  return fmt::format(
      R"({{"time":"2026-01-01T00:00:{:02}.000Z","container":"{}","stream":"stdout","line":"{}",)"
      R"("truncated":false,"generation":3}})"
      "\n",
      second, container, text);
}

class LogReaderTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_OK(TestNode::Outcome(node_.agent().StartActor(node_.StartRequest(1))));
    ASSERT_OK_AND_ASSIGN(logs_, node_.dirs().root().OpenDir(NodeDirs::ActorPath(kActorUid, kLogs)));
    request_.mutable_actor()->set_atespace("demo");
    request_.mutable_actor()->set_name("counter");
  }
  std::vector<std::string> Read() {
    std::vector<std::string> out;
    LogReader reader(&node_.dirs());
    EXPECT_OK(reader.Read(
        request_,
        [&](const LogLine& line) {
          out.push_back(line.line());
          return true;
        },
        [] { return true; }));
    return out;
  }
  using Lines = std::vector<std::string>;

  TestNode node_;
  os::DirFd logs_;
  ReadLogsRequest request_;
};

TEST_F(LogReaderTest, ContainersAreMergedByTimeAcrossRotation) {
  ASSERT_OK(logs_.WriteFile("a.log.1", Line(1, "a", "a1"), 0600));
  ASSERT_OK(logs_.WriteFile("a.log", Line(3, "a", "a3"), 0600));
  ASSERT_OK(logs_.WriteFile("b.log", Line(2, "b", "b2") + Line(4, "b", "b4") + "{half", 0600));
  EXPECT_EQ(Read(), (Lines{"a1", "b2", "a3", "b4"}));
  request_.set_container("b");
  EXPECT_EQ(Read(), (Lines{"b2", "b4"}));
  request_.clear_container();
  request_.set_tail_lines(2);
  EXPECT_EQ(Read(), (Lines{"a3", "b4"}));
  request_.clear_tail_lines();
  google::protobuf::Timestamp* start = request_.mutable_start_time();
  *start = ParseLogLine(Line(3, "a", ""))->time();
  EXPECT_EQ(Read(), (Lines{"a3", "b4"}));
}

TEST_F(LogReaderTest, FollowingSeesNewLinesNewContainersAndRotation) {
  ASSERT_OK(logs_.WriteFile("a.log", Line(1, "a", "one"), 0600));
  request_.set_follow(true);
  LogReader reader(&node_.dirs());
  Lines got;
  auto sink = [&](const LogLine& line) {
    got.push_back(line.line());
    if (line.line() == "one") {
      auto fd = logs_.OpenRegular("a.log", O_WRONLY | O_APPEND);
      EXPECT_OK(fd);
      EXPECT_OK(os::WriteAll(fd->get(), Line(2, "a", "two")));
      EXPECT_OK(logs_.Rename("a.log", "a.log.1"));
      EXPECT_OK(logs_.WriteFile("a.log", Line(3, "a", "three"), 0600));
    }
    if (line.line() == "three") {
      EXPECT_OK(logs_.WriteFile("b.log", Line(4, "b", "four"), 0600));
    }
    return line.line() != "four";
  };
  ASSERT_OK(reader.Read(request_, sink, [] { return false; }));
  EXPECT_EQ(got, (Lines{"one", "two", "three", "four"}));
}

TEST_F(LogReaderTest, StrangeFilesAndNamesAreNotRead) {
  ASSERT_EQ(
      symlink("/etc/passwd",
              (node_.path() + "/" + NodeDirs::ActorPath(kActorUid, kLogs) + "/x.log").c_str()),
      0);
  ASSERT_OK(logs_.WriteFile("a.log", "not json\n[]\n{\"time\": 5}\n" + Line(1, "a", "ok"), 0600));
  EXPECT_EQ(Read(), Lines{"ok"});
  LogReader reader(&node_.dirs());
  auto none = [](const LogLine&) { return true; };
  auto stop = [] { return true; };
  request_.set_container("../a");
  EXPECT_THAT(reader.Read(request_, none, stop), HasCode(Code::kInvalidArgument));
  request_.clear_container();
  request_.mutable_actor()->set_name("nobody");
  EXPECT_THAT(reader.Read(request_, none, stop), HasReason(Code::kNotFound, "ACTOR_NOT_FOUND"));
}

TEST(LogLineTest, Parses) {
  auto line = ParseLogLine(Line(1, "a", "text"));
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->container(), "a");
  EXPECT_EQ(line->generation(), 3);
  EXPECT_FALSE(ParseLogLine("").has_value());
  EXPECT_FALSE(ParseLogLine("{}").has_value());
}

}  // namespace
}  // namespace torpor::agent
