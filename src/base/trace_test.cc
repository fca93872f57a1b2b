#include "base/trace.h"

#include <gtest/gtest.h>

namespace torpor {
namespace {

constexpr char kTrace[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(Trace, OnlyTheW3cFormIsOne) {
  EXPECT_EQ(TraceIdOf(kTrace), "0af7651916cd43dd8448eb211c80319c");
  for (const char* bad : {"", "00-", "01-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-0AF7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
                          "00-00000000000000000000000000000000-b7ad6b7169203331-01",
                          "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
                          "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-more"}) {
    EXPECT_EQ(TraceIdOf(bad), "") << bad;
  }
}

TEST(Trace, AUuidGivesOne) {
  const std::string made = TraceparentOfUuid("00000000-0000-4000-8000-000000000001");
  EXPECT_TRUE(IsTraceparent(made)) << made;
  EXPECT_EQ(TraceIdOf(made), "00000000000040008000000000000001");
  EXPECT_EQ(TraceparentOfUuid("short"), "");
}

TEST(Trace, ScopesNestAndEnd) {
  EXPECT_EQ(LogTrace::Current(), "");
  {
    LogTrace outer(kTrace);
    EXPECT_EQ(LogTrace::Current(), kTrace);
    {
      LogTrace inner(TraceparentOfUuid("00000000-0000-4000-8000-000000000001"));
      LogTrace invalid("nonsense");
      EXPECT_EQ(TraceIdOf(LogTrace::Current()), "00000000000040008000000000000001");
    }
    EXPECT_EQ(LogTrace::Current(), kTrace);
  }
  EXPECT_EQ(LogTrace::Current(), "");
}

}  // namespace
}  // namespace torpor
