#include "objstore/http/retry.h"

#include <set>

#include <gtest/gtest.h>

namespace torpor::objstore {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Whatever a connection can do wrong passes; what is wrong with us or our certificates does not.
TEST(RetryTest, F2_EveryCurlCode) {
  const std::set<int> lasting = {1, 2, 3, 4, 27, 42, 43, 48, 53, 58, 59, 60, 77};
  for (int code = 1; code <= 120; ++code) {
    EXPECT_EQ(AdviceFor({code, 0, ""}), lasting.count(code) > 0 ? Advice::kEnd : Advice::kRepeat)
        << code;
    // What the head said before the connection broke does not matter.
    EXPECT_EQ(AdviceFor({code, 200, ""}), AdviceFor({code, 0, ""})) << code;
  }
}

TEST(RetryTest, F2_EveryHttpStatus) {
  const std::set<int> lasting_server_errors = {501, 505, 507};
  for (int status = 100; status < 600; ++status) {
    Advice want = Advice::kEnd;
    if (status == 408 || status == 425 || status == 429) want = Advice::kRepeat;
    if (status == 400 || status == 401 || status == 403) want = Advice::kRefresh;
    if (status >= 500 && lasting_server_errors.count(status) == 0) want = Advice::kRepeat;
    EXPECT_EQ(AdviceFor({0, status, ""}), want) << status;
  }
}

TEST(RetryTest, F2_TheCodeOfTheAnswerDecidesMore) {
  struct Case {
    int status;
    const char* code;
    Advice want;
  };
  for (const Case& c :
       {Case{503, "SlowDown", Advice::kRepeat}, Case{400, "RequestTimeout", Advice::kRepeat},
        Case{400, "BadDigest", Advice::kRepeat}, Case{400, "IncompleteBody", Advice::kRepeat},
        Case{200, "InternalError", Advice::kRepeat},
        Case{409, "ConditionalRequestConflict", Advice::kRepeat},
        Case{409, "OperationAborted", Advice::kRepeat}, Case{409, "BucketNotEmpty", Advice::kEnd},
        Case{400, "ExpiredToken", Advice::kRefresh}, Case{403, "ExpiredToken", Advice::kRefresh},
        Case{403, "AccessDenied", Advice::kEnd}, Case{403, "RequestTimeTooSkewed", Advice::kEnd},
        Case{400, "InvalidArgument", Advice::kEnd}, Case{404, "NoSuchBucket", Advice::kEnd},
        Case{412, "PreconditionFailed", Advice::kEnd}}) {
    EXPECT_EQ(AdviceFor({0, c.status, c.code}), c.want) << c.code;
  }
}

TEST(RetryTest, F1_PausesDoubleUpToTheMostWithFullJitter) {
  const RetryRules rules;
  const int64_t want[] = {250, 500, 1000, 2000, 4000, 5000, 5000};
  for (int tries = 1; tries <= 7; ++tries) {
    EXPECT_EQ(RetryPause(rules, tries, 1, {}), milliseconds(want[tries - 1])) << tries;
    EXPECT_EQ(RetryPause(rules, tries, 0, {}), Duration(0)) << tries;
    EXPECT_EQ(RetryPause(rules, tries, 0.5, {}), milliseconds(want[tries - 1] / 2)) << tries;
  }
  EXPECT_EQ(RetryPause(rules, 1 << 30, 1, {}), seconds(5));
}

TEST(RetryTest, F1_TheStoresWishIsHonouredUpToAMinute) {
  EXPECT_EQ(RetryPause({}, 1, 0, seconds(7)), seconds(7));
  EXPECT_EQ(RetryPause({}, 1, 0, std::chrono::hours(7)), seconds(60));
  EXPECT_EQ(ParseRetryAfter("3"), seconds(3));
  EXPECT_EQ(ParseRetryAfter("999999999999"), seconds(60));
  for (const char* text :
       {"", "-1", "1.5", "3 s", "Wed, 21 Oct 2026 07:28:00 GMT", "99999999999999999999999"}) {
    EXPECT_EQ(ParseRetryAfter(text), Duration(0)) << text;
  }
}

}  // namespace
}  // namespace torpor::objstore
