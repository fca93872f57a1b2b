#include "base/quantity.h"

#include <gtest/gtest.h>

#include "base/testing/matchers.h"

namespace torpor {
namespace {

TEST(Quantity, Values) {
  const std::pair<const char*, int64_t> bytes[] = {
      {"512", 512},    {"64Mi", 64 << 20}, {"2Gi", int64_t{2} << 30},  {"1k", 1000}, {"1e3", 1000},
      {"1.5Ki", 1536}, {"0.1", 1},         {"1E", 1000000000000000000}};
  for (const auto& [text, want] : bytes) {
    ASSERT_OK_AND_ASSIGN(int64_t got, ParseBytes(text));
    EXPECT_EQ(got, want) << text;
  }
  const std::pair<const char*, int64_t> milli[] = {{"1", 1000}, {"250m", 250},    {"0.1", 100},
                                                   {"100u", 1}, {"1.0005", 1001}, {"100m", 100}};
  for (const auto& [text, want] : milli) {
    ASSERT_OK_AND_ASSIGN(int64_t got, ParseMilli(text));
    EXPECT_EQ(got, want) << text;
  }
}

TEST(Quantity, Refused) {
  for (const char* text : {"", "0", "-1", "Mi", "1Xi", "1 Mi", "1.2.3", "1e99", "99999999E", "0x10",
                           "1e", "nan", "1Mi "}) {
    EXPECT_THAT(ParseBytes(text), HasCode(Code::kInvalidArgument)) << text;
  }
}

TEST(Quantity, Format) {
  EXPECT_EQ(FormatBytes(512), "512");
  EXPECT_EQ(FormatBytes(512 << 20), "512Mi");
  EXPECT_EQ(FormatBytes(1536), "1.5Ki");
}

}  // namespace
}  // namespace torpor
