#include "base/log.h"

#include <gtest/gtest.h>

namespace torpor {
namespace {

TEST(Redact, HidesWhatLooksLikeASecret) {
  const std::pair<const char*, const char*> cases[] = {
      {"plain text", "plain text"},
      {"GET https://u:pw@host/a?sig=1 failed", "GET https://[redacted]@host/a?[redacted] failed"},
      {"Authorization: Bearer abc.def", "Authorization: Bearer [redacted]"},
      {"X-Amz-Signature=deadbeef x", "X-Amz-Signature=[redacted] x"},
      {"token: 12345", "token: [redacted]"}};
  for (const auto& [text, want] : cases) EXPECT_EQ(Redact(text), want);
}

TEST(Log, OneJsonLineWithFields) {
  testing::internal::CaptureStderr();
  Log(LogLevel::kInfo, "actor \"a\" started", {{"ms", "12"}, {"auth", "Bearer xyz"}});
  std::string line = testing::internal::GetCapturedStderr();
  EXPECT_NE(line.find(R"("level":"info")"), std::string::npos) << line;
  EXPECT_NE(line.find(R"("message":"actor \"a\" started")"), std::string::npos) << line;
  EXPECT_NE(line.find(R"("ms":"12")"), std::string::npos) << line;
  EXPECT_EQ(line.find("xyz"), std::string::npos) << line;
  EXPECT_EQ(line.back(), '\n');
}

}  // namespace
}  // namespace torpor
