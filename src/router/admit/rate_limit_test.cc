#include "router/admit/rate_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "router/admit/client_address.h"

namespace torpor::router {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kManyKeys = 100'000;

class RateLimitTest : public ::testing::Test {
 protected:
  // How many of `tries` requests may go on at this moment.
  int Taken(RateLimit* limit, const std::string& key, int tries) {
    int taken = 0;
    for (int i = 0; i < tries; ++i) taken += limit->Take(key, now_) ? 0 : 1;
    return taken;
  }

  MonotonicTime now_ = MonotonicTime(std::chrono::hours(1));
};

TEST_F(RateLimitTest, IsOffAtZero) {
  EXPECT_FALSE(RateLimit(0, kManyKeys).on());
  EXPECT_TRUE(RateLimit(1, kManyKeys).on());
}

TEST_F(RateLimitTest, ABucketHoldsOneSecondAndFillsEvenly) {
  RateLimit limit(10, kManyKeys);
  EXPECT_EQ(Taken(&limit, "a", 30), 10);
  now_ += milliseconds(99);
  EXPECT_EQ(Taken(&limit, "a", 5), 0);
  now_ += milliseconds(1);
  EXPECT_EQ(Taken(&limit, "a", 5), 1);
  now_ += milliseconds(350);
  EXPECT_EQ(Taken(&limit, "a", 5), 3);
  now_ += seconds(1000);
  EXPECT_EQ(Taken(&limit, "a", 30), 10);
}

TEST_F(RateLimitTest, SaysHowLongToWait) {
  RateLimit limit(4, kManyKeys);
  EXPECT_EQ(Taken(&limit, "a", 4), 4);
  EXPECT_EQ(limit.Take("a", now_), milliseconds(250));
  EXPECT_EQ(limit.Take("a", now_), milliseconds(250)) << "a refused request costs nothing";
  now_ += milliseconds(100);
  EXPECT_EQ(limit.Take("a", now_), milliseconds(150));
  now_ += milliseconds(150);
  EXPECT_EQ(limit.Take("a", now_), std::nullopt);
}

TEST_F(RateLimitTest, OnePerSecondAndManyThousands) {
  RateLimit one(1, kManyKeys);
  EXPECT_EQ(Taken(&one, "a", 3), 1);
  EXPECT_EQ(one.Take("a", now_), seconds(1));
  RateLimit many(50'000, kManyKeys);
  EXPECT_EQ(Taken(&many, "a", 50'001), 50'000);
}

TEST_F(RateLimitTest, KeysDoNotDisturbEachOther) {
  RateLimit limit(2, kManyKeys);
  EXPECT_EQ(Taken(&limit, "a", 5), 2);
  EXPECT_EQ(Taken(&limit, "b", 5), 2);
  EXPECT_EQ(limit.size(), 2u);
}

TEST_F(RateLimitTest, MemoryIsBounded) {
  RateLimit limit(1, 16'000);
  for (int i = 0; i < 50'000; ++i) {
    EXPECT_EQ(limit.Take("key" + std::to_string(i), now_), std::nullopt);
  }
  EXPECT_EQ(limit.size(), 16'000u);
  // What is full again is forgotten by and by, though there would be room.
  now_ += seconds(2);
  for (int i = 0; i < 10'000; ++i) (void)limit.Take("new" + std::to_string(i), now_);
  EXPECT_EQ(limit.size(), 10'000u);
}

TEST_F(RateLimitTest, WhoIsUsedIsNotForgotten) {
  RateLimit limit(1, 160);
  EXPECT_EQ(limit.Take("mine", now_), std::nullopt);
  for (int i = 0; i < 2000; ++i) {
    (void)limit.Take("key" + std::to_string(i), now_);
    EXPECT_TRUE(limit.Take("mine", now_).has_value()) << i;
  }
}

RequestHead HeadWith(const std::vector<std::string>& forwarded_for) {
  RequestHead head;
  for (const std::string& value : forwarded_for) {
    head.fields.push_back(Field{"x-forwarded-for", value, FieldId::kForwardedFor});
  }
  return head;
}

TEST(ClientAddressTest, IsWhatTrustedProxiesSay) {
  AddressSet proxies;
  ASSERT_OK(proxies.Add("10.0.0.0/8"));
  ASSERT_OK(proxies.Add("fd00::1"));
  struct {
    std::string peer;
    std::vector<std::string> fields;
    std::string_view client;
  } cases[] = {
      {"9.9.9.9", {}, "9.9.9.9"},
      {"9.9.9.9", {"1.2.3.4"}, "9.9.9.9"},  // Anybody can write that.
      {"10.0.0.1", {}, "10.0.0.1"},
      {"10.0.0.1", {"1.2.3.4"}, "1.2.3.4"},
      {"fd00::1", {"2001:db8::7"}, "2001:db8::7"},
      {"10.0.0.1", {"6.6.6.6, 1.2.3.4"}, "1.2.3.4"},  // The first is made up.
      {"10.0.0.1", {"1.2.3.4 ,\t10.0.0.9"}, "1.2.3.4"},
      {"10.0.0.1", {"6.6.6.6", "1.2.3.4, 10.0.0.9"}, "1.2.3.4"},
      {"10.0.0.1", {"1.2.3.4", "10.0.0.9"}, "1.2.3.4"},
      {"10.0.0.1", {"10.0.0.8, 10.0.0.9"}, "10.0.0.8"},
      {"10.0.0.1", {"1.2.3.4, unknown"}, "10.0.0.1"},
      {"10.0.0.1", {"1.2.3.4, unknown, 10.0.0.9"}, "10.0.0.9"},
      {"10.0.0.1", {" , ,"}, "10.0.0.1"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(ClientAddress(HeadWith(c.fields), c.peer, proxies), c.client)
        << c.peer << " " << ::testing::PrintToString(c.fields);
  }
}

TEST(ClientAddressTest, KeysAreAddressesOrNetworks) {
  EXPECT_EQ(ClientKey("1.2.3.4"), "\x01\x02\x03\x04");
  EXPECT_EQ(ClientKey("::ffff:1.2.3.4"), ClientKey("1.2.3.4"));
  EXPECT_NE(ClientKey("1.2.3.4"), ClientKey("1.2.3.5"));
  EXPECT_EQ(ClientKey("2001:db8::1"), ClientKey("2001:db8::ffff:1"));
  EXPECT_NE(ClientKey("2001:db8::1"), ClientKey("2001:db8:0:1::1"));
  for (const char* bad : {"", "unknown", "1.2.3.4:80", "[::1]", "1.2.3", "_x"}) {
    EXPECT_EQ(ClientKey(bad), "") << bad;
  }
  EXPECT_EQ(ClientKey(std::string(200, '1')), "");
}

}  // namespace
}  // namespace torpor::router
