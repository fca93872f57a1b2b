#include "router/h1/rewrite.h"

#include <gtest/gtest.h>

namespace torpor::router {
namespace {

std::string Request(const std::string& text, bool trusted = false) {
  RequestHead head;
  EXPECT_EQ(ParseRequestHead(text, HeadLimits(), &head), Rule::kNone) << text;
  RequestRewrite rewrite;
  rewrite.target = "/p";
  rewrite.actor = "demo/a";
  rewrite.client = "10.0.0.1";
  rewrite.request_id = "id";
  rewrite.traceparent = "tp";
  rewrite.trusted_client = trusted;
  std::string out;
  WriteRequestHead(head, rewrite, &out);
  return out;
}

constexpr char kAdded[] =
    "ate-target-actor: demo/a\r\nx-forwarded-for: 10.0.0.1\r\nx-forwarded-proto: http\r\n"
    "x-forwarded-host: h:80\r\nx-request-id: id\r\ntraceparent: tp\r\n\r\n";

TEST(RewriteTest, Requests) {
  struct {
    std::string fields;   // In, after Host.
    std::string written;  // Out, between Host and what is always added.
  } cases[] = {
      {"", ""},
      {"Accept: x\r\nCookie: a=b\r\n", "Accept: x\r\nCookie: a=b\r\n"},
      {"Connection: keep-alive, X-Hop\r\nX-Hop: 1\r\nx-hop: 2\r\nY: 1\r\n", "Y: 1\r\n"},
      {"Keep-Alive: 5\r\nProxy-Connection: x\r\nProxy-Authorization: x\r\nTE: trailers\r\n", ""},
      {"Upgrade: websocket\r\n", ""},
      {"Connection: Upgrade\r\nUpgrade: websocket\r\n",
       "Connection: Upgrade\r\nUpgrade: websocket\r\n"},
      {"ate-target-actor: x/y\r\nate-foo: 1\r\nATE_FOO: 1\r\ntorpor-x: 1\r\nTorpor_X: 2\r\n", ""},
      {"x-forwarded-for: 1.1.1.1\r\nX-Forwarded-Proto: https\r\nForwarded: for=1\r\n", ""},
      {"x-request-id: forged\r\ntraceparent: forged\r\n", ""},
      {"Content-Length: 007\r\n", "Content-Length: 7\r\n"},
      {"Transfer-Encoding: CHUNKED\r\nTrailer: X\r\n",
       "Transfer-Encoding: chunked\r\nTrailer: X\r\n"},
      {"Expect: 100-continue\r\n", "Expect: 100-continue\r\n"},
      // Connection cannot take away what the router relies on.
      {"Connection: Host, ate-target-actor, Content-Length\r\nContent-Length: 3\r\n",
       "Content-Length: 3\r\n"},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(Request("GET /ignored HTTP/1.1\r\nHost: h:80\r\n" + c.fields + "\r\n"),
              "GET /p HTTP/1.1\r\nHost: h:80\r\n" + c.written + kAdded)
        << c.fields;
  }
}

TEST(RewriteTest, TrustedProxiesKeepTheirForwardedFields) {
  std::string out = Request(
      "GET / HTTP/1.1\r\nHost: h\r\nX-Forwarded-For: 1.1.1.1\r\nX-Forwarded-Proto: https\r\n"
      "ate-x: 1\r\n\r\n",
      true);
  EXPECT_NE(out.find("x-forwarded-for: 1.1.1.1, 10.0.0.1\r\n"), std::string::npos) << out;
  EXPECT_NE(out.find("X-Forwarded-Proto: https\r\n"), std::string::npos);
  EXPECT_EQ(out.find("x-forwarded-proto: http\r\n"), std::string::npos);
  EXPECT_EQ(out.find("ate-x"), std::string::npos);
}

TEST(RewriteTest, Answers) {
  struct {
    std::string in;
    ResponseRewrite rewrite;
    std::string out;
  } cases[] = {
      {"HTTP/1.1 200 Fine\r\nContent-Length: 3\r\nX: 1\r\nserver-timing: app\r\n\r\n",
       {.server_timing = "st", .request_id = "id", .framing = Framing::kLength},
       "HTTP/1.1 200 Fine\r\nX: 1\r\nserver-timing: app\r\nContent-Length: 3\r\n"
       "Server-Timing: st\r\nx-request-id: id\r\n\r\n"},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: X, close\r\nX: 1\r\n"
       "Keep-Alive: 3\r\ntorpor-reason: FORGED\r\ntorpor-hibernate: pause\r\nate-x: 1\r\n\r\n",
       {.request_id = "id", .framing = Framing::kChunked},
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nx-request-id: id\r\n\r\n"},
      {"HTTP/1.1 200 OK\r\nx-request-id: own\r\n\r\n",
       {.request_id = "id", .framing = Framing::kUntilClose, .close = true},
       "HTTP/1.1 200 OK\r\nx-request-id: own\r\nConnection: close\r\n\r\n"},
      {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n",
       {.request_id = "id", .framing = Framing::kLength, .client_http11 = false},
       "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nConnection: keep-alive\r\nx-request-id: "
       "id\r\n\r\n"},
      {"HTTP/1.1 204 No\r\nContent-Length: 3\r\n\r\n",
       {.request_id = "id"},
       "HTTP/1.1 204 No\r\nx-request-id: id\r\n\r\n"},
      {"HTTP/1.1 304 No\r\nContent-Length: 3\r\n\r\n",
       {.request_id = "id"},
       "HTTP/1.1 304 No\r\nContent-Length: 3\r\nx-request-id: id\r\n\r\n"},
      {"HTTP/1.1 101 S\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n",
       {.request_id = "id", .upgrade = true},
       "HTTP/1.1 101 S\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nx-request-id: id\r\n\r\n"},
  };
  for (const auto& c : cases) {
    ResponseHead head;
    ASSERT_EQ(ParseResponseHead(c.in, kResponseLimits, false, &head), Rule::kNone);
    std::string out;
    WriteResponseHead(head, c.rewrite, &out);
    EXPECT_EQ(out, c.out) << c.in;
  }
}

TEST(RewriteTest, IdsFromOutsideAreUsedOnlyWhenHarmless) {
  EXPECT_TRUE(IsUsableRequestId("3f-x:1"));
  EXPECT_FALSE(IsUsableRequestId(""));
  EXPECT_FALSE(IsUsableRequestId("a b"));
  EXPECT_FALSE(IsUsableRequestId("a\"b"));
  EXPECT_FALSE(IsUsableRequestId(std::string(129, 'a')));
}

}  // namespace
}  // namespace torpor::router
