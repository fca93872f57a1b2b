#include "router/target/target.h"

#include <gtest/gtest.h>

namespace torpor::router {
namespace {

const TargetRules& Rules() {
  static const TargetRules rules({"actors.localhost", "Example.ORG.", "deep.example.org"},
                                 {"gateway.corp"});
  return rules;
}

// "demo/a", "demo/a:8080", or the reason of the refusal.
std::string Resolve(const std::string& text) {
  RequestHead head;
  Rule rule = ParseRequestHead(text, HeadLimits(), &head);
  if (rule != Rule::kNone) return std::string("rule ") + std::string(RuleName(rule));
  auto result = ResolveTarget(head, Rules());
  if (auto* error = std::get_if<TargetError>(&result)) {
    EXPECT_EQ(error->status, error->reason == "NO_TARGET" ? 404 : 400);
    EXPECT_FALSE(error->message.empty());
    return std::string(error->reason);
  }
  Target& target = std::get<Target>(result);
  std::string out = target.key.ToString();
  if (target.port) out += ":" + std::to_string(*target.port);
  return out;
}

std::string ByHost(const std::string& host, const std::string& fields = "") {
  return Resolve("GET / HTTP/1.1\r\nHost: " + host + "\r\n" + fields + "\r\n");
}
std::string Header(const std::string& value) { return "ate-target-actor: " + value + "\r\n"; }

TEST(TargetTest, HostForms) {
  const std::string label63(63, 'x');
  const std::string label64(64, 'x');
  struct {
    std::string host;
    std::string result;
  } cases[] = {
      {"a.demo.actors.localhost", "demo/a"},
      {"a.demo.actors.localhost:80", "demo/a"},
      {"a.demo.actors.localhost:65535", "demo/a"},
      {"A.Demo.ACTORS.LocalHost", "demo/a"},
      {"a.demo.actors.localhost.", "demo/a"},
      {"a.demo.actors.localhost.:80", "demo/a"},
      {"a.demo.actors.localhost..", "BAD_REQUEST"},
      {"counter-1.team-2.actors.localhost", "team-2/counter-1"},
      {"0.0.actors.localhost", "0/0"},
      {label63 + "." + label63 + ".actors.localhost", label63 + "/" + label63},
      {label64 + ".demo.actors.localhost", "BAD_REQUEST"},
      {"a.demo.example.org", "demo/a"},
      {"a.demo.deep.example.org", "demo/a"},
      // Below the shorter suffix the longer one is no atespace.
      {"demo.deep.example.org", "NO_TARGET"},
      {"actors.localhost", "NO_TARGET"},
      {"a.actors.localhost", "NO_TARGET"},
      {"x.a.demo.actors.localhost", "BAD_REQUEST"},
      {".demo.actors.localhost", "BAD_REQUEST"},
      {"a..actors.localhost", "BAD_REQUEST"},
      {"-a.demo.actors.localhost", "BAD_REQUEST"},
      {"a-.demo.actors.localhost", "BAD_REQUEST"},
      {"a_b.demo.actors.localhost", "BAD_REQUEST"},
      {"a.-d.actors.localhost", "BAD_REQUEST"},
      {"aactors.localhost", "NO_TARGET"},
      {"a.demo.xactors.localhost", "NO_TARGET"},
      {"a.demo.actors.localhost.evil.com", "NO_TARGET"},
      {"localhost", "NO_TARGET"},
      {"127.0.0.1", "NO_TARGET"},
      {"[::1]:80", "NO_TARGET"},
      {"gateway.corp", "NO_TARGET"},
      {"", "NO_TARGET"},
      {"a.demo.actors.localhost:", "BAD_REQUEST"},
      {"a.demo.actors.localhost:0", "BAD_REQUEST"},
      {"a.demo.actors.localhost:65536", "BAD_REQUEST"},
      {"a.demo.actors.localhost:080x", "BAD_REQUEST"},
      {"a.demo.actors.localhost:80:80", "BAD_REQUEST"},
      {"a.demo.actors.localhost/x", "BAD_REQUEST"},
      {"u@a.demo.actors.localhost", "BAD_REQUEST"},
      {"a.demo.actors.localhost, b", "BAD_REQUEST"},
      {"a.demo.actors.local%68ost", "BAD_REQUEST"},
      {"a.demo.actors.localhost\\", "BAD_REQUEST"},
      {"[::1", "BAD_REQUEST"},
      {"[zz]", "BAD_REQUEST"},
      {"[::1]x", "BAD_REQUEST"},
      {".", "BAD_REQUEST"},
      {":80", "BAD_REQUEST"},
      {std::string(300, 'a') + ".actors.localhost", "BAD_REQUEST"},
      {"\xc3\xa4.demo.actors.localhost", "BAD_REQUEST"},
  };
  for (const auto& c : cases) EXPECT_EQ(ByHost(c.host), c.result) << c.host;
}

TEST(TargetTest, HeaderForms) {
  struct {
    std::string value;
    std::string result;
  } cases[] = {
      {"demo/a", "demo/a"},        {"  demo/a\t", "demo/a"},          {"demo/", "BAD_REQUEST"},
      {"/a", "BAD_REQUEST"},       {"demo", "BAD_REQUEST"},           {"", "BAD_REQUEST"},
      {"demo/a/b", "BAD_REQUEST"}, {"Demo/a", "BAD_REQUEST"},         {"demo/A", "BAD_REQUEST"},
      {"demo/a b", "BAD_REQUEST"}, {"demo/a, demo/b", "BAD_REQUEST"}, {"../a", "BAD_REQUEST"},
      {"demo/..", "BAD_REQUEST"},  {"demo/%61", "BAD_REQUEST"},       {"demo/a\x80", "BAD_REQUEST"},
      {"demo\\a", "BAD_REQUEST"},  {"ate-golden/a", "ate-golden/a"},
  };
  for (const auto& c : cases) EXPECT_EQ(ByHost("localhost", Header(c.value)), c.result) << c.value;
}

// Who may use the header form, so that no web page reaches an actor by DNS rebinding.
TEST(TargetTest, HostsBesideTheHeader) {
  struct {
    std::string host;
    std::string result;
  } cases[] = {
      {"localhost", "demo/a"},
      {"LOCALHOST:7780", "demo/a"},
      {"localhost.", "demo/a"},
      {"127.0.0.1", "demo/a"},
      {"127.0.0.1:7780", "demo/a"},
      {"192.168.1.1", "demo/a"},
      {"[::1]:7780", "demo/a"},
      {"[fe80::1]", "demo/a"},
      {"", "demo/a"},
      {"gateway.corp", "demo/a"},
      {"Gateway.Corp:80", "demo/a"},
      {"x.gateway.corp", "TARGET_CONFLICT"},
      {"evil.com", "TARGET_CONFLICT"},
      {"localhost.evil.com", "TARGET_CONFLICT"},
      {"x.localhost", "TARGET_CONFLICT"},
      {"127.0.0.1.evil.com", "TARGET_CONFLICT"},
      {"127.1", "TARGET_CONFLICT"},
      {"2130706433", "TARGET_CONFLICT"},
      {"0x7f.0.0.1", "TARGET_CONFLICT"},
      {"127.0.0.256", "TARGET_CONFLICT"},
      // Under a suffix both forms must agree.
      {"a.demo.actors.localhost", "demo/a"},
      {"A.demo.actors.localhost:1", "demo/a"},
      {"actors.localhost", "demo/a"},
      {"b.demo.actors.localhost", "TARGET_CONFLICT"},
      {"a.other.actors.localhost", "TARGET_CONFLICT"},
      {"a.actors.localhost", "TARGET_CONFLICT"},
      {"x.a.demo.actors.localhost", "TARGET_CONFLICT"},
      {"a.demo.example.org", "demo/a"},
      {"b.demo.example.org", "TARGET_CONFLICT"},
      {"bad host", "BAD_REQUEST"},
  };
  for (const auto& c : cases) EXPECT_EQ(ByHost(c.host, Header("demo/a")), c.result) << c.host;
}

TEST(TargetTest, TwoHeadersAreAConflictEvenIfTheyAgree) {
  EXPECT_EQ(ByHost("localhost", Header("demo/a") + Header("demo/a")), "TARGET_CONFLICT");
  EXPECT_EQ(ByHost("localhost", Header("demo/a") + "ATE-Target-Actor: demo/b\r\n"),
            "TARGET_CONFLICT");
}

TEST(TargetTest, PagesOfOtherSitesMayNotUseTheHeader) {
  struct {
    std::string site;
    std::string by_header;
  } cases[] = {{"cross-site", "TARGET_CONFLICT"},
               {"Cross-Site", "TARGET_CONFLICT"},
               {"same-origin", "demo/a"},
               {"same-site", "demo/a"},
               {"none", "demo/a"}};
  for (const auto& c : cases) {
    std::string field = "Sec-Fetch-Site: " + c.site + "\r\n";
    EXPECT_EQ(ByHost("localhost", Header("demo/a") + field), c.by_header) << c.site;
    // A link from another site to an actor's own host is an ordinary link.
    EXPECT_EQ(ByHost("a.demo.actors.localhost", field), "demo/a") << c.site;
  }
}

TEST(TargetTest, AbsoluteForms) {
  auto absolute = [](const std::string& target, const std::string& host) {
    return Resolve("GET " + target + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  };
  EXPECT_EQ(absolute("http://a.demo.actors.localhost/x", "a.demo.actors.localhost"), "demo/a");
  EXPECT_EQ(absolute("http://A.demo.actors.localhost?q", "a.demo.actors.localhost"), "demo/a");
  EXPECT_EQ(absolute("http://a.demo.actors.localhost:80/", "a.demo.actors.localhost"),
            "TARGET_CONFLICT");
  EXPECT_EQ(absolute("http://b.demo.actors.localhost/", "a.demo.actors.localhost"),
            "TARGET_CONFLICT");
  EXPECT_EQ(absolute("http:///x", "a.demo.actors.localhost"), "BAD_REQUEST");
  EXPECT_EQ(absolute("http://u@a.demo.actors.localhost/", "u@a.demo.actors.localhost"),
            "BAD_REQUEST");
}

TEST(TargetTest, PathsAreInOriginForm) {
  struct {
    std::string target;
    std::string path;
  } cases[] = {{"/x?y", "/x?y"},
               {"http://a.demo.actors.localhost/x", "/x"},
               {"http://a.demo.actors.localhost?q=1", "/?q=1"},
               {"http://a.demo.actors.localhost", "/"},
               {"/http://other/", "/http://other/"}};
  for (const auto& c : cases) {
    std::string text = "GET " + c.target + " HTTP/1.1\r\nHost: a.demo.actors.localhost\r\n\r\n";
    RequestHead head;
    ASSERT_EQ(ParseRequestHead(text, HeadLimits(), &head), Rule::kNone);
    auto result = ResolveTarget(head, Rules());
    ASSERT_TRUE(std::holds_alternative<Target>(result)) << c.target;
    EXPECT_EQ(std::get<Target>(result).path, c.path);
  }
}

TEST(TargetTest, Ports) {
  auto port = [](const std::string& value) {
    return ByHost("a.demo.actors.localhost", "torpor-target-port: " + value + "\r\n");
  };
  EXPECT_EQ(port("1"), "demo/a:1");
  EXPECT_EQ(port("65535"), "demo/a:65535");
  for (const char* bad : {"0", "65536", "-1", "+1", "80x", "", "8 0", "000080", "0x50"}) {
    EXPECT_EQ(port(bad), "BAD_PORT") << bad;
  }
  EXPECT_EQ(port("80\r\ntorpor-target-port: 80"), "BAD_PORT");
}

TEST(TargetTest, OldClientsWithoutHostNeedTheHeader) {
  EXPECT_EQ(Resolve("GET / HTTP/1.0\r\n\r\n"), "NO_TARGET");
  EXPECT_EQ(Resolve("GET / HTTP/1.0\r\nate-target-actor: demo/a\r\n\r\n"), "demo/a");
}

TEST(TargetTest, NoTargetShowsBothForms) {
  RequestHead head;
  ASSERT_EQ(ParseRequestHead("GET / HTTP/1.1\r\nHost: x\r\n\r\n", HeadLimits(), &head),
            Rule::kNone);
  auto result = ResolveTarget(head, TargetRules({"actors.localhost"}, {}));
  const std::string& message = std::get<TargetError>(result).message;
  EXPECT_NE(message.find("<actor>.<atespace>.actors.localhost"), std::string::npos);
  EXPECT_NE(message.find("ate-target-actor: <atespace>/<actor>"), std::string::npos);
}

}  // namespace
}  // namespace torpor::router
