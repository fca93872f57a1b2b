// Which requests go on to their actors, through real sockets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "router/testing/test_bed.h"

namespace torpor::router {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

RouterOptions Rates(int64_t per_address, int64_t per_atespace) {
  RouterOptions options = TestOptions();
  options.rate_per_address = per_address;
  options.rate_per_atespace = per_atespace;
  return options;
}

// The clock stands still, so no bucket fills while a test is slow.
class LimitedBed : public FakeClock, public TestBed {
 public:
  explicit LimitedBed(RouterOptions options)
      : TestBed(CountingActor, std::move(options), nullptr, this) {}
};

std::string GetFrom(const std::string& actor, const std::string& extra = "") {
  return "GET / HTTP/1.1\r\nHost: " + actor + ".actors.localhost\r\n" + extra + "\r\n";
}

TEST(RouterAdmitTest, RatesAreOffUnlessSet) {
  TestBed s(CountingActor);
  Peer client = s.Client();
  for (int i = 0; i < 200; ++i) {
    client.Send(Get("/"));
    EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  }
}

TEST(RouterAdmitTest, AnAddressAboveItsRateIsToldWhenToComeAgain) {
  LimitedBed s(Rates(1, 0));
  Peer client = s.Client();
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  // Another connection and another actor are the same client.
  Peer other = s.Client();
  other.Send(GetFrom("b.other"));
  std::string body;
  std::string head = other.ReadAnswer(&body);
  EXPECT_THAT(head, StartsWith("HTTP/1.1 429 Too Many Requests\r\n"));
  EXPECT_THAT(head, HasSubstr("torpor-reason: RATE_LIMITED\r\n"));
  EXPECT_THAT(head, HasSubstr("Retry-After: 1\r\n"));
  EXPECT_THAT(head, HasSubstr("Content-Type: application/problem+json\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("Connection: close")));
  EXPECT_THAT(body, HasSubstr("\"actor\":\"other/b\""));
  EXPECT_THAT(body, HasSubstr("\"reached_actor\":false"));
  EXPECT_THAT(body, HasSubstr("\"retry_after_ms\":"));
  EXPECT_EQ(s.resolver.calls(), 1) << "the other actor was not looked up, so not woken";
  std::string metrics = s.Metrics();
  EXPECT_THAT(metrics, HasSubstr("{status_class=\"4xx\",reason=\"RATE_LIMITED\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("torpor_router_rate_limited_total{limit=\"address\"} 1\n"));
  s.Advance(std::chrono::seconds(1));
  other.Send(Get("/"));
  EXPECT_THAT(other.ReadAnswer(), StartsWith("HTTP/1.1 200"));
}

TEST(RouterAdmitTest, AnAtespaceAboveItsRateLeavesTheOthersAlone) {
  LimitedBed s(Rates(0, 1));
  Peer client = s.Client();
  client.Send(GetFrom("a.demo"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  client.Send(GetFrom("b.demo"));
  EXPECT_THAT(client.ReadAnswer(), HasSubstr("torpor-reason: RATE_LIMITED\r\n"));
  client.Send(GetFrom("a.other"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(s.Metrics(), HasSubstr("torpor_router_rate_limited_total{limit=\"atespace\"} 1\n"));
}

TEST(RouterAdmitTest, BehindATrustedProxyTheClientIsWhomItNames) {
  RouterOptions options = Rates(1, 0);
  options.trusted_proxies = {"127.0.0.0/8"};
  LimitedBed s(options);
  Peer proxy = s.Client();
  auto status = [&](const std::string& forwarded_for) {
    proxy.Send(Get("/", "x-forwarded-for: " + forwarded_for + "\r\n"));
    return proxy.ReadAnswer().substr(9, 3);
  };
  EXPECT_EQ(status("1.2.3.4"), "200");
  EXPECT_EQ(status("1.2.3.5"), "200");
  EXPECT_EQ(status("9.9.9.9, 1.2.3.4"), "429") << "what the client itself wrote counts for nothing";
  EXPECT_EQ(status("9.9.9.9"), "200");
}

TEST(RouterAdmitTest, NobodyElseCanNameAnotherClient) {
  LimitedBed s(Rates(1, 0));
  Peer client = s.Client();
  client.Send(Get("/", "x-forwarded-for: 1.2.3.4\r\n"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  client.Send(Get("/", "x-forwarded-for: 1.2.3.5\r\n"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 429"));
}

TEST(RouterAdmitTest, ALimitedRequestWithABodyEndsTheConnection) {
  LimitedBed s(Rates(0, 1));
  Peer client = s.Client();
  client.Send(Get("/"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  client.Send("POST / HTTP/1.1\r\nHost: " + std::string(kHost) + "\r\nContent-Length: 9\r\n\r\n");
  std::string head = client.ReadAnswer();
  EXPECT_THAT(head, StartsWith("HTTP/1.1 429"));
  EXPECT_THAT(head, HasSubstr("Connection: close\r\n"));
}

}  // namespace
}  // namespace torpor::router
