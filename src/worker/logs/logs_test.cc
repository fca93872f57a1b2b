#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "base/testing/matchers.h"
#include "worker/logs/log_file.h"
#include "worker/logs/log_lines.h"
#include "worker/logs/log_pump.h"

namespace torpor::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(LineSplitterTest, CutsAndTruncates) {
  std::vector<std::pair<std::string, bool>> got;
  auto sink = [&](std::string_view line, bool cut) { got.emplace_back(line, cut); };
  LineSplitter splitter(5);
  splitter.Feed("ab", sink);
  splitter.Feed("c\r\n\n12345\n123456", sink);
  splitter.Feed("789", sink);
  splitter.Feed("\nend", sink);
  splitter.End(sink);
  splitter.End(sink);
  using L = std::pair<std::string, bool>;
  EXPECT_EQ(got,
            (std::vector<L>{
                {"abc", false}, {"", false}, {"12345", false}, {"12345", true}, {"end", false}}));
}

TEST(RateBudgetTest, RefillsUpToOneSecond) {
  MonotonicTime now{};
  RateBudget budget(1 << 20, now);
  EXPECT_TRUE(budget.Take(1 << 20, now));
  EXPECT_FALSE(budget.Take(1, now));
  now += milliseconds(500);
  EXPECT_TRUE(budget.Take(500 << 10, now));
  EXPECT_FALSE(budget.Take(100 << 10, now));
  now += std::chrono::hours(24 * 365);
  EXPECT_TRUE(budget.Take(1 << 20, now));
  EXPECT_FALSE(budget.Take(1, now));
}

TEST(FormatLogLineTest, AnyBytesAreOneLineOfJson) {
  std::string text = FormatLogLine({.container = "app",
                                    .stream = "stdout",
                                    .line = "a\"b\\\n\x01\xff\xfe z",
                                    .truncated = true,
                                    .generation = 9});
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 1);
  nlohmann::json json = nlohmann::json::parse(text);
  EXPECT_EQ(json["container"], "app");
  EXPECT_EQ(json["truncated"], true);
  EXPECT_EQ(json["generation"], 9);
  EXPECT_FALSE(json.contains("dropped"));
}

class LogDirTest : public ::testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/worker-logs-XXXXXX";
    path_ = mkdtemp(name);
  }
  void TearDown() override { std::filesystem::remove_all(path_); }
  os::DirFd Dir() {
    StatusOr<os::DirFd> dir = os::DirFd::OpenPath(path_);
    EXPECT_OK(dir);
    return std::move(dir).value();
  }
  std::vector<nlohmann::json> Lines(const std::string& name) {
    std::ifstream file(path_ + "/" + name);
    std::vector<nlohmann::json> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(nlohmann::json::parse(line));
    return lines;
  }
  std::string path_;
};

TEST_F(LogDirTest, FileRotatesOnceFull) {
  os::DirFd dir = Dir();
  {
    LogFile file(&dir, "app.log", 30);
    for (const char* line :
         {"first-12345\n", "second-1234\n", "third-12345\n", "fourth-1234\n", "fifth-12345\n"}) {
      ASSERT_OK(file.Append(line));
    }
  }
  LogFile again(&dir, "app.log", 30);
  ASSERT_OK(again.Append("sixth\n"));
  std::stringstream now, before;
  now << std::ifstream(path_ + "/app.log").rdbuf();
  before << std::ifstream(path_ + "/app.log.1").rdbuf();
  EXPECT_EQ(now.str(), "fifth-12345\nsixth\n");
  EXPECT_EQ(before.str(), "third-12345\nfourth-1234\n");
}

TEST_F(LogDirTest, ALinkInThePlaceOfTheFileIsNotFollowed) {
  os::DirFd dir = Dir();
  std::string target = path_ + "/target";
  ASSERT_EQ(symlink(target.c_str(), (path_ + "/app.log").c_str()), 0);
  LogFile file(&dir, "app.log", 1000);
  EXPECT_FALSE(file.Append("x\n").ok());
  EXPECT_FALSE(std::filesystem::exists(target));
}

TEST_F(LogDirTest, PumpWritesEveryStreamAndKeepsTheLastLines) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<LogPump> pump, LogPump::Start(Clock::Real()));
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<LogSession> session, pump->Open(Dir(), 4, {"a", "b"}));
  auto stdio = session->stdio();
  ASSERT_EQ(dprintf(stdio["a"].stdout_fd, "one\ntwo"), 7);
  ASSERT_EQ(dprintf(stdio["a"].stderr_fd, "oops\n"), 5);
  ASSERT_EQ(dprintf(stdio["b"].stdout_fd, "other\n"), 6);
  session->Finish(Clock::Real()->Now() + seconds(10));
  std::vector<nlohmann::json> a = Lines("a.log");
  ASSERT_EQ(a.size(), 3u);
  std::map<std::string, std::string> by_line;
  for (const auto& line : a) by_line[line["line"]] = line["stream"];
  EXPECT_EQ(by_line, (std::map<std::string, std::string>{
                         {"one", "stdout"}, {"two", "stdout"}, {"oops", "stderr"}}));
  EXPECT_EQ(Lines("b.log").at(0)["generation"], 4);
  EXPECT_NE(session->LastLines().find("oops"), std::string::npos);
}

TEST_F(LogDirTest, AFloodIsDrainedCappedAndCounted) {
  FakeClock clock;  // stands still: one second's budget for all of it
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<LogPump> pump,
                       LogPump::Start(&clock, {.line_bytes_max = 100,
                                               .bytes_per_second_max = 64 << 10,
                                               .file_bytes_max = 8 << 20}));
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<LogSession> session, pump->Open(Dir(), 1, {"app"}));
  std::string line(200, 'x');
  line.back() = '\n';
  constexpr int kLines = 20000;  // 4 MB: the writer must never be held up
  for (int i = 0; i < kLines; ++i) {
    ASSERT_EQ(write(session->stdio()["app"].stdout_fd, line.data(), line.size()),
              static_cast<ssize_t>(line.size()));
  }
  session->CloseGuestEnds();
  session->Finish(clock.Now() + std::chrono::hours(1));
  std::vector<nlohmann::json> lines = Lines("app.log");
  ASSERT_GT(lines.size(), 2u);
  EXPECT_EQ(lines[0]["line"].get<std::string>().size(), 100u);
  EXPECT_EQ(lines[0]["truncated"], true);
  EXPECT_EQ(lines.back()["stream"], "torpor");
  EXPECT_EQ(static_cast<int>(lines.size()) - 1 + lines.back()["dropped"].get<int>(), kLines);
  EXPECT_LE(lines.size() * 101, (64u << 10) + 202);
}

TEST_F(LogDirTest, FinishDoesNotWaitForALeftBehindWriter) {
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<LogPump> pump, LogPump::Start(Clock::Real()));
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<LogSession> session, pump->Open(Dir(), 1, {"app"}));
  UniqueFd kept(dup(session->stdio()["app"].stdout_fd));
  MonotonicTime begin = Clock::Real()->Now();
  session->Finish(begin + milliseconds(30));
  EXPECT_LT(Clock::Real()->Now() - begin, seconds(5));
  session.reset();
  kept.Reset();
}

}  // namespace
}  // namespace torpor::worker
