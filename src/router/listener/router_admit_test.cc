// Which requests go on to their actors, through real sockets.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <atomic>
#include <fstream>
#include <thread>

#include "base/testing/matchers.h"
#include "router/admit/token_file.h"
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

// A clock that stands still, so that no bucket fills while a test is slow. Whole before the
// router's threads use it, and until they have ended.
struct Stopped {
  FakeClock clock;
};

class LimitedBed : public Stopped, public TestBed {
 public:
  explicit LimitedBed(RouterOptions options)
      : TestBed(CountingActor, std::move(options), nullptr, &clock) {}
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
  s.clock.Advance(std::chrono::seconds(1));
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

// Allows what carries "torpor-authorization: <atespace>" and knows nobody else; counts.
class FakeAuthorizer : public Authorizer {
 public:
  std::optional<Denial> Authorize(const RequestHead& head, const ActorKey& actor) override {
    ++asked;
    for (const Field& field : head.fields) {
      if (!EqualsIgnoreCase(field.name, "torpor-authorization")) continue;
      if (field.value == actor.atespace) return std::nullopt;
      return Denial{true, "for " + actor.atespace};
    }
    return Denial{false, "nobody knows you"};
  }
  void Refresh() override { ++refreshed; }

  std::atomic<int> asked{0};
  std::atomic<int> refreshed{0};
};

struct Guard : Stopped {
  FakeAuthorizer authorizer;
};

class GuardedBed : public Guard, public TestBed {
 public:
  explicit GuardedBed(FakeDoor::Actor actor = CountingActor, RouterOptions options = TestOptions())
      : TestBed(std::move(actor), std::move(options), nullptr, &clock, &authorizer) {}
};

TEST(RouterAdmitTest, WhoIsNotKnownWakesNothing) {
  GuardedBed s;
  Peer client = s.Client();
  client.Send(Get("/"));
  std::string body;
  std::string head = client.ReadAnswer(&body);
  EXPECT_THAT(head, StartsWith("HTTP/1.1 401 Unauthorized\r\n"));
  EXPECT_THAT(head, HasSubstr("WWW-Authenticate: Bearer\r\n"));
  EXPECT_THAT(head, HasSubstr("torpor-reason: UNAUTHENTICATED\r\n"));
  EXPECT_THAT(body, HasSubstr("nobody knows you"));
  EXPECT_THAT(body, HasSubstr("\"reached_actor\":false"));
  client.Send(GetFrom("a.other", "torpor-authorization: demo\r\n"));
  head = client.ReadAnswer();
  EXPECT_THAT(head, StartsWith("HTTP/1.1 403 Forbidden\r\n"));
  EXPECT_THAT(head, HasSubstr("torpor-reason: NOT_ALLOWED\r\n"));
  EXPECT_THAT(head, Not(HasSubstr("WWW-Authenticate")));
  EXPECT_EQ(s.resolver.calls(), 0);
  EXPECT_TRUE(s.door.connects().empty());
}

TEST(RouterAdmitTest, TheTokenStaysHereAndTheActorsOwnPasses) {
  std::string seen;
  GuardedBed s([&](Peer& peer) {
    seen = peer.ReadHead();
    peer.Send(Ok("x"));
    peer.ReadHead();
  });
  Peer client = s.Client();
  client.Send(Get("/", "Torpor-Authorization: demo\r\nAuthorization: Bearer mine\r\n"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(seen, HasSubstr("Authorization: Bearer mine\r\n"));
  EXPECT_THAT(seen, Not(HasSubstr("orpor-")));
}

TEST(RouterAdmitTest, EveryRequestOfAConnectionIsChecked) {
  GuardedBed s;
  Peer client = s.Client();
  const std::string with = Get("/", "torpor-authorization: demo\r\n");
  client.Send(with + Get("/") + with);
  for (const char* status : {"200", "401", "200"}) {
    EXPECT_EQ(client.ReadAnswer().substr(9, 3), status);
  }
  EXPECT_EQ(s.authorizer.asked.load(), 3);
}

TEST(RouterAdmitTest, TheTokenFromATrustedProxyStaysHereToo) {
  std::string seen;
  RouterOptions options = TestOptions();
  options.trusted_proxies = {"127.0.0.0/8"};
  GuardedBed s(
      [&](Peer& peer) {
        seen = peer.ReadHead();
        peer.Send(Ok("x"));
        peer.ReadHead();
      },
      options);
  Peer client = s.Client();
  client.Send(Get("/", "torpor-authorization: demo\r\n"));
  EXPECT_THAT(client.ReadAnswer(), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(seen, Not(HasSubstr("torpor-")));
}

TEST(RouterAdmitTest, GuessesCountForTheAddressAndNotForTheAtespace) {
  GuardedBed s(CountingActor, Rates(3, 1));
  Peer client = s.Client();
  auto status = [&](const std::string& extra) {
    client.Send(Get("/", extra));
    return client.ReadAnswer().substr(9, 3);
  };
  EXPECT_EQ(status(""), "401");
  EXPECT_EQ(status("torpor-authorization: other\r\n"), "403");
  EXPECT_EQ(status("torpor-authorization: demo\r\n"), "200") << "the atespace's only one";
  EXPECT_EQ(status(""), "429");
  EXPECT_EQ(s.authorizer.asked.load(), 3);
}

TEST(RouterAdmitTest, ATokenOfTheFileOpensItsAtespace) {
  const std::string path = "/tmp/router-admit-" + std::to_string(getpid());
  // The sha256 of "foo".
  std::ofstream(path) << "2c26b46b68ffc68ff99b453c1d30413413422d706483bfa0f98a5e886266e7ae demo\n";
  ASSERT_OK_AND_ASSIGN(std::unique_ptr<TokenFile> tokens, TokenFile::Open(path));
  unlink(path.c_str());
  TestBed s(CountingActor, TestOptions(), nullptr, Clock::Real(), tokens.get());
  Peer client = s.Client();
  auto status = [&](const std::string& actor, const std::string& extra) {
    client.Send(GetFrom(actor, extra));
    return client.ReadAnswer().substr(9, 3);
  };
  EXPECT_EQ(status("a.demo", "torpor-authorization: Bearer foo\r\n"), "200");
  EXPECT_EQ(status("a.demo", "TORPOR-AUTHORIZATION: bearer foo\r\n"), "200");
  EXPECT_EQ(status("a.other", "torpor-authorization: Bearer foo\r\n"), "403");
  EXPECT_EQ(status("a.demo", "torpor-authorization: Bearer bar\r\n"), "401");
  EXPECT_EQ(status("a.demo", "authorization: Bearer foo\r\n"), "401");
}

TEST(RouterAdmitTest, TheAuthorizerMayRefreshItself) {
  GuardedBed s;
  auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (s.authorizer.refreshed == 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_GT(s.authorizer.refreshed.load(), 0);
}

}  // namespace
}  // namespace torpor::router
