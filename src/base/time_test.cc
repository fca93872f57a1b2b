#include "base/time.h"

#include <gtest/gtest.h>

#include "base/testing/matchers.h"

namespace torpor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Time, ParseDuration) {
  const std::pair<const char*, Duration> cases[] = {
      {"0", Duration(0)},     {"250ms", milliseconds(250)}, {"1.5s", milliseconds(1500)},
      {"1m30s", seconds(90)}, {"2h", seconds(7200)},        {"1d", seconds(86400)}};
  for (const auto& [text, want] : cases) {
    ASSERT_OK_AND_ASSIGN(Duration got, ParseDuration(text));
    EXPECT_EQ(got, want) << text;
  }
  for (const char* text : {"", "5", "-1s", "s", "1x", "1s ", "1e99h"}) {
    EXPECT_THAT(ParseDuration(text), HasCode(Code::kInvalidArgument)) << text;
  }
}

TEST(Time, FormatDuration) {
  EXPECT_EQ(FormatDuration(milliseconds(250)), "250ms");
  EXPECT_EQ(FormatDuration(milliseconds(1500)), "1.5s");
  EXPECT_EQ(FormatDuration(seconds(90)), "1m30s");
}

TEST(Time, ProtoRoundTrip) {
  WallTime t = WallTime(milliseconds(1764526523123));
  EXPECT_EQ(FromProto(ToProto(t)), t);
  EXPECT_EQ(FormatRfc3339(t), "2025-11-30T18:15:23.123Z");
  EXPECT_EQ(FromProto(ToProto(WallTime(milliseconds(-1500)))), WallTime(milliseconds(-1500)));
  google::protobuf::Duration huge;
  huge.set_seconds(INT64_MAX);
  EXPECT_GT(FromProto(huge), std::chrono::hours(1));
}

TEST(Time, FakeClockMovesOnlyByAdvance) {
  FakeClock clock;
  MonotonicTime before = clock.Now();
  WallTime wall = clock.WallNow();
  clock.Advance(seconds(3));
  EXPECT_EQ(clock.Now() - before, seconds(3));
  EXPECT_EQ(clock.WallNow() - wall, seconds(3));
}

}  // namespace
}  // namespace torpor
