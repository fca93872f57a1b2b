#include "worker/door/connect_head.h"

#include <gtest/gtest.h>

#include <cstring>

namespace torpor::worker {
namespace {

constexpr char kGood[] =
    "CONNECT 11111111-2222-4333-8444-555555555555.12.actor.torpor:8080 HTTP/1.1\r\n"
    "torpor-router: r1\r\n\r\n";

TEST(ConnectHeadTest, Complete) {
  ConnectHead head = ParseConnectHead(kGood);
  ASSERT_EQ(head.state, HeadState::kComplete) << head.problem;
  EXPECT_EQ(head.target.uid, "11111111-2222-4333-8444-555555555555");
  EXPECT_EQ(head.target.generation, 12);
  EXPECT_EQ(head.target.port, 8080);
}

constexpr char kControl[] =
    "GET /torpor/control HTTP/1.1\r\nHost: door\r\nConnection: Upgrade\r\n"
    "Upgrade: torpor-control/1\r\ntorpor-router: r-1\r\n\r\n";

TEST(ConnectHeadTest, Control) {
  ConnectHead head = ParseConnectHead(kControl);
  ASSERT_EQ(head.state, HeadState::kComplete) << head.problem;
  EXPECT_TRUE(head.control);
  EXPECT_EQ(head.router, "r-1");
  std::string_view good(kControl);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(ParseConnectHead(good.substr(0, size)).state, HeadState::kIncomplete) << size;
  }
  for (const char* line :
       {"Connection: Upgrade\r\n", "Upgrade: torpor-control/1\r\n", "torpor-router: r-1\r\n"}) {
    std::string without(kControl);
    without.erase(without.find(line), strlen(line));
    EXPECT_EQ(ParseConnectHead(without).state, HeadState::kBad) << line;
  }
}

TEST(ConnectHeadTest, RouterName) {
  EXPECT_EQ(ParseConnectHead(kGood).router, "r1");
  EXPECT_FALSE(ParseConnectHead(kGood).control);
  std::string target =
      "CONNECT 11111111-2222-4333-8444-555555555555.1.actor.torpor:80 HTTP/1.1\r\n";
  for (const char* fields : {"torpor-router: a b\r\n", "torpor-router:\r\n",
                             "torpor-router: a\r\ntorpor-router: a\r\n"}) {
    EXPECT_EQ(ParseConnectHead(target + fields + "\r\n").state, HeadState::kBad) << fields;
  }
  std::string longest(kRouterNameMax, 'r');
  EXPECT_EQ(ParseConnectHead(target + "torpor-router: " + longest + "\r\n\r\n").router, longest);
  EXPECT_EQ(ParseConnectHead(target + "torpor-router: " + longest + "r\r\n\r\n").state,
            HeadState::kBad);
}

TEST(ConnectHeadTest, EveryPrefixIsIncomplete) {
  std::string_view good(kGood);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_EQ(ParseConnectHead(good.substr(0, size)).state, HeadState::kIncomplete) << size;
  }
}

TEST(ConnectHeadTest, HostMustAgree) {
  std::string target = "11111111-2222-4333-8444-555555555555.1.actor.torpor:80";
  auto with_host = [&](const std::string& host) {
    return ParseConnectHead("CONNECT " + target + " HTTP/1.1\r\nHOST:  " + host + " \r\n\r\n");
  };
  EXPECT_EQ(with_host(target).state, HeadState::kComplete);
  EXPECT_EQ(with_host("other").state, HeadState::kBad);
}

TEST(ConnectHeadTest, Bad) {
  const std::string uid = "11111111-2222-4333-8444-555555555555";
  auto request = [](const std::string& target) {
    return "CONNECT " + target + " HTTP/1.1\r\n\r\n";
  };
  const std::string cases[] = {
      "GET / HTTP/1.1\r\n\r\n",
      "GET /torpor/control/ HTTP/1.1\r\n\r\n",
      "GET /torpor/control HTTP/1.0\r\n\r\n",
      "connect " + uid + ".1.actor.torpor:80 HTTP/1.1\r\n\r\n",
      request(uid + ".0.actor.torpor:80"),
      request(uid + ".-1.actor.torpor:80"),
      request(uid + ".01.actor.torpor:80"),
      request(uid + ".99999999999999999999.actor.torpor:80"),
      request(uid + ".9223372036854775808.actor.torpor:80"),
      request(uid + ".1.actor.torpor:0"),
      request(uid + ".1.actor.torpor:65536"),
      request(uid + ".1.actor.torpor:"),
      request(uid + ".1.actor.torpor"),
      request(uid + ".1.actor.evil:80"),
      request(uid + ".1.actor.torpor:80 "),
      request(" " + uid + ".1.actor.torpor:80"),
      request("1111111-2222-4333-8444-555555555555.1.actor.torpor:80"),
      request("11111111-2222-4333-8444-55555555555G.1.actor.torpor:80"),
      request("AAAAAAAA-2222-4333-8444-555555555555.1.actor.torpor:80"),
      request("../../../../etc/passwd.1.actor.torpor:80"),
      request(""),
      "CONNECT " + uid + ".1.actor.torpor:80 HTTP/1.0\r\n\r\n",
      "CONNECT " + uid + ".1.actor.torpor:80 HTTP/1.1\n\n",
      "CONNECT " + uid + ".1.actor.torpor:80 HTTP/1.1\r\nno colon\r\n\r\n",
      "CONNECT " + uid + ".1.actor.torpor:80 HTTP/1.1\r\n: x\r\n\r\n",
      "CONNECT " + uid + ".1.actor.torpor:80 HTTP/1.1\r\na b: x\r\n\r\n",
      "CONNECT " + uid + ".1.actor.torpor:80 HTTP/1.1\r\n folded: x\r\n\r\n",
      "CONNECT " + uid + ".1.actor.torpor:80 HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
      "CONNECT " + uid + ".1.actor.torpor:80 HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n",
      request(uid + ".1.actor.torpor:80") + "x",
      std::string("CONNECT \0", 9),
      "CONNECT \rx",
      "CONNECT \x80",
      "CONNECT " + std::string(kConnectHeadBytesMax, 'a'),
  };
  for (const std::string& text : cases) {
    EXPECT_EQ(ParseConnectHead(text).state, HeadState::kBad) << text;
  }
  std::string fields = "CONNECT " + uid + ".1.actor.torpor:80 HTTP/1.1\r\n";
  for (int i = 0; i <= kConnectHeadFieldsMax; ++i) fields += "a: b\r\n";
  EXPECT_EQ(ParseConnectHead(fields + "\r\n").state, HeadState::kBad);
}

}  // namespace
}  // namespace torpor::worker
