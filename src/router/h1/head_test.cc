#include "router/h1/head.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace torpor::router {
namespace {

using State = HeadScanner::State;

struct Case {
  std::string text;
  Rule rule;
};

std::string Printable(const std::string& text) { return ::testing::PrintToString(text); }

Rule ParseRequest(const std::string& text, RequestHead* head) {
  HeadScanner scanner;
  State state = scanner.Scan(text);
  if (state == State::kBad) return Rule::kLineBreak;
  EXPECT_EQ(state, State::kComplete) << Printable(text);
  return ParseRequestHead(std::string_view(text).substr(0, scanner.size()), HeadLimits(), head);
}

// `fields` between a good request line with Host and the end.
std::string With(const std::string& fields) {
  return "POST / HTTP/1.1\r\nHost: a\r\n" + fields + "\r\n";
}

TEST(RequestHeadTest, EveryRuleIsEnforced) {
  const std::string nul("\0", 1);
  const Case cases[] = {
      {With(""), Rule::kNone},
      // The request line.
      {"GET /\r\nHost: a\r\n\r\n", Rule::kRequestLine},
      {"GET\r\nHost: a\r\n\r\n", Rule::kRequestLine},
      {" GET / HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kMethod},
      {"GE(T / HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kMethod},
      {"GET\t/ HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kRequestLine},
      {std::string(33, 'A') + " / HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kMethod},
      {"CONNECT a:80 HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kMethodRefused},
      {"TRACE / HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kMethodRefused},
      {"GET  / HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kTarget},
      {"GET / a HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kTarget},
      {"GET /\t HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kTarget},
      {"GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kTarget},
      {"GET /\x80 HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kTarget},
      {"GET a HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kTarget},
      {"GET ftp://a/ HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kTarget},
      {"GET * HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kTarget},
      {"OPTIONS * HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kNone},
      {"GET http://a/x HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kNone},
      {"GET / HTTP/1.2\r\nHost: a\r\n\r\n", Rule::kVersion},
      {"GET / HTTP/2.0\r\nHost: a\r\n\r\n", Rule::kVersion},
      {"GET / http/1.1\r\nHost: a\r\n\r\n", Rule::kVersion},
      {"GET / HTTP/1.1 \r\nHost: a\r\n\r\n", Rule::kTarget},
      // Line breaks and folding.
      {"GET / HTTP/1.1\nHost: a\n\n", Rule::kLineBreak},
      {"\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", Rule::kLineBreak},
      {"GET / HTTP/1.1\r\nHost: a\n\r\n", Rule::kLineBreak},
      {"GET / HTTP/1.1\rX: y\r\nHost: a\r\n\r\n", Rule::kLineBreak},
      {With("X: a\rb\r\n"), Rule::kLineBreak},
      {With("X: a" + nul + "b\r\n"), Rule::kLineBreak},
      {With("X: a\r\n b\r\n"), Rule::kObsFold},
      {With("X: a\r\n\tb\r\n"), Rule::kObsFold},
      {With(" X: a\r\n"), Rule::kObsFold},
      // Fields.
      {With("X : a\r\n"), Rule::kSpaceBeforeColon},
      {With("X\t: a\r\n"), Rule::kSpaceBeforeColon},
      {With("X\r\n"), Rule::kFieldName},
      {With(": a\r\n"), Rule::kFieldName},
      {With("X(Y): a\r\n"), Rule::kFieldName},
      {With("X Y: a\r\n"), Rule::kFieldName},
      {With("X\x80: a\r\n"), Rule::kFieldName},
      {With("X: a\x01\r\n"), Rule::kFieldValue},
      {With("X: a\x7f\r\n"), Rule::kFieldValue},
      {With("X: \x80\xff\tz\r\n"), Rule::kNone},
      {With("X:\r\n"), Rule::kNone},
      // Host.
      {"GET / HTTP/1.1\r\n\r\n", Rule::kHost},
      {"GET / HTTP/1.0\r\n\r\n", Rule::kNone},
      {With("Host: a\r\n"), Rule::kHost},
      {With("hOST: b\r\n"), Rule::kHost},
      // Length and transfer coding.
      {With("Content-Length: 5\r\n"), Rule::kNone},
      {With("Content-Length: 5\r\nContent-Length: 5\r\n"), Rule::kLengthRepeated},
      {With("Content-Length: 5\r\ncontent-length: 6\r\n"), Rule::kLengthRepeated},
      {With("Content-Length: 5, 5\r\n"), Rule::kLengthInvalid},
      {With("Content-Length: +5\r\n"), Rule::kLengthInvalid},
      {With("Content-Length: -5\r\n"), Rule::kLengthInvalid},
      {With("Content-Length: 0x5\r\n"), Rule::kLengthInvalid},
      {With("Content-Length: 5.0\r\n"), Rule::kLengthInvalid},
      {With("Content-Length: 5 \r\n"), Rule::kNone},
      {With("Content-Length: 5 5\r\n"), Rule::kLengthInvalid},
      {With("Content-Length:\r\n"), Rule::kLengthInvalid},
      {With("Content-Length: 1234567890123456789\r\n"), Rule::kLengthInvalid},
      {With("Transfer-Encoding: chunked\r\n"), Rule::kNone},
      {With("Transfer-Encoding: CHUNKED\r\n"), Rule::kNone},
      {With("Transfer-Encoding: gzip, chunked\r\n"), Rule::kTransferEncoding},
      {With("Transfer-Encoding: chunked, gzip\r\n"), Rule::kTransferEncoding},
      {With("Transfer-Encoding: chunked;x=1\r\n"), Rule::kTransferEncoding},
      {With("Transfer-Encoding: xchunked\r\n"), Rule::kTransferEncoding},
      {With("Transfer-Encoding: identity\r\n"), Rule::kTransferEncoding},
      {With("Transfer-Encoding:\r\n"), Rule::kTransferEncoding},
      {With("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
       Rule::kTransferEncoding},
      {With("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n"), Rule::kLengthAndChunked},
      {With("Transfer-Encoding: gzip\r\nContent-Length: 5\r\n"), Rule::kLengthAndChunked},
      {"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", Rule::kOldVersionChunked},
      {With("Expect: 100-continue\r\n"), Rule::kNone},
      {With("Expect: something\r\n"), Rule::kExpect},
  };
  for (const Case& c : cases) {
    RequestHead head;
    EXPECT_EQ(RuleName(ParseRequest(c.text, &head)), RuleName(c.rule)) << Printable(c.text);
  }
}

TEST(RequestHeadTest, LimitsHaveRulesOfTheirOwn) {
  RequestHead head;
  EXPECT_EQ(
      ParseRequest("GET /" + std::string(16 << 10, 'a') + " HTTP/1.1\r\nHost: a\r\n\r\n", &head),
      Rule::kUriTooLong);
  EXPECT_EQ(ParseRequest(With("X: " + std::string(33 << 10, 'a') + "\r\n"), &head),
            Rule::kFieldTooLarge);
  std::string many;
  for (int i = 0; i < 100; ++i) many += "X: a\r\n";
  EXPECT_EQ(ParseRequest(With(many), &head), Rule::kTooManyFields);
  std::string large;
  for (int i = 0; i < 3; ++i) large += "X: " + std::string(30 << 10, 'a') + "\r\n";
  EXPECT_EQ(ParseRequest(With(large), &head), Rule::kHeadTooLarge);
}

TEST(RequestHeadTest, SaysWhatTheRequestWants) {
  RequestHead head;
  const std::string text =
      "PUT /a?b HTTP/1.1\r\nHost:  x \r\nContent-Length: 12\r\n"
      "Connection: X-Hop, close\r\nX-Hop: 1\r\nExpect: 100-Continue\r\n\r\n";
  ASSERT_EQ(ParseRequest(text, &head), Rule::kNone);
  EXPECT_EQ(head.method, "PUT");
  EXPECT_EQ(head.target, "/a?b");
  EXPECT_EQ(head.framing, Framing::kLength);
  EXPECT_EQ(head.length, 12u);
  EXPECT_FALSE(head.keep_alive);
  EXPECT_TRUE(head.expect_continue);
  EXPECT_THAT(head.connection_names, ::testing::ElementsAre("X-Hop"));
  EXPECT_EQ(head.Find(FieldId::kHost)->value, "x");
  EXPECT_EQ(head.Find(FieldId::kTraceparent), nullptr);

  ASSERT_EQ(ParseRequest("GET / HTTP/1.0\r\n\r\n", &head), Rule::kNone);
  EXPECT_FALSE(head.keep_alive);
  ASSERT_EQ(ParseRequest("GET / HTTP/1.0\r\nConnection: Keep-Alive\r\n\r\n", &head), Rule::kNone);
  EXPECT_TRUE(head.keep_alive);
}

TEST(RequestHeadTest, OnlyRealUpgradesAreOne) {
  struct {
    std::string fields;
    bool upgrade;
  } cases[] = {
      {"Connection: upgrade\r\nUpgrade: websocket\r\n", true},
      {"Connection: keep-alive, Upgrade\r\nUpgrade: websocket\r\n", true},
      {"Upgrade: websocket\r\n", false},
      {"Connection: upgrade\r\n", false},
      {"Connection: upgrade\r\nUpgrade: h2c\r\n", false},
      {"Connection: upgrade\r\nUpgrade: websocket, h2c\r\n", false},
      {"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 5\r\n", false},
      {"Connection: upgrade\r\nUpgrade: websocket\r\nContent-Length: 0\r\n", true},
  };
  for (const auto& c : cases) {
    RequestHead head;
    ASSERT_EQ(ParseRequest(With(c.fields), &head), Rule::kNone);
    EXPECT_EQ(head.wants_upgrade, c.upgrade) << c.fields;
  }
}

TEST(RequestHeadTest, ReservedNamesAreKnownInEverySpelling) {
  struct {
    std::string name;
    FieldId id;
  } cases[] = {
      {"ate-target-actor", FieldId::kTargetActor},
      {"ATE-Target-Actor", FieldId::kTargetActor},
      {"ate_target_actor", FieldId::kReserved},
      {"ate-other", FieldId::kReserved},
      {"torpor-target-port", FieldId::kTargetPort},
      {"Torpor_Target_Port", FieldId::kReserved},
      {"x-forwarded-for", FieldId::kForwardedFor},
      {"X_Forwarded_For", FieldId::kForwarded},
      {"x-forwarded-host", FieldId::kForwarded},
      {"Forwarded", FieldId::kForwarded},
      {"Proxy-Authorization", FieldId::kHopByHop},
      {"Keep-Alive", FieldId::kHopByHop},
      {"Content_Length", FieldId::kHopByHop},
      {"transfer_encoding", FieldId::kHopByHop},
      {"Accept", FieldId::kOther},
      {"atex", FieldId::kOther},
  };
  for (const auto& c : cases) {
    Field field;
    ASSERT_EQ(ParseFieldLine(c.name + ": v", HeadLimits(), &field), Rule::kNone);
    EXPECT_EQ(field.id, c.id) << c.name;
  }
}

TEST(HeadScannerTest, FindsTheEndHoweverTheBytesCome) {
  const std::string head = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";
  const std::string all = head + "body\n\n";
  for (size_t step = 1; step <= all.size(); ++step) {
    HeadScanner scanner;
    State state = State::kMore;
    for (size_t n = step; state == State::kMore; n += step) {
      state = scanner.Scan(std::string_view(all).substr(0, n));
    }
    EXPECT_EQ(state, State::kComplete);
    EXPECT_EQ(scanner.size(), head.size());
  }
  HeadScanner scanner;
  EXPECT_EQ(scanner.Scan("GET / HTTP/1.1\r\nHost: a\n"), State::kBad);
}

TEST(ResponseHeadTest, EveryRuleIsEnforced) {
  const Case cases[] = {
      {"HTTP/1.1 200 OK\r\n\r\n", Rule::kNone},
      {"HTTP/1.1 200\r\n\r\n", Rule::kNone},
      {"HTTP/1.0 404 \r\n\r\n", Rule::kNone},
      {"HTTP/1.1 2000 OK\r\n\r\n", Rule::kStatusLine},
      {"HTTP/1.1 99 OK\r\n\r\n", Rule::kStatusLine},
      {"HTTP/1.1 600 OK\r\n\r\n", Rule::kStatusLine},
      {"HTTP/1.1  200 OK\r\n\r\n", Rule::kStatusLine},
      {"HTTP/2 200 OK\r\n\r\n", Rule::kStatusLine},
      {"200 OK\r\n\r\n", Rule::kStatusLine},
      {"HTTP/1.1 200 O\x01K\r\n\r\n", Rule::kStatusLine},
      {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", Rule::kLengthRepeated},
      {"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", Rule::kLengthInvalid},
      {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
       Rule::kLengthAndChunked},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\n\r\n", Rule::kTransferEncoding},
      {"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", Rule::kOldVersionChunked},
      {"HTTP/1.1 200 OK\r\nX: a\r\n b\r\n\r\n", Rule::kObsFold},
  };
  for (const Case& c : cases) {
    ResponseHead head;
    EXPECT_EQ(RuleName(ParseResponseHead(c.text, kResponseLimits, false, &head)), RuleName(c.rule))
        << Printable(c.text);
  }
}

TEST(ResponseHeadTest, KnowsWhereTheBodyEnds) {
  struct {
    std::string head;
    bool to_head;
    Framing framing;
  } cases[] = {
      {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", false, Framing::kLength},
      {"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", true, Framing::kNone},
      {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", false, Framing::kChunked},
      {"HTTP/1.1 200 OK\r\n\r\n", false, Framing::kUntilClose},
      {"HTTP/1.1 204 No\r\n\r\n", false, Framing::kNone},
      {"HTTP/1.1 304 No\r\nContent-Length: 3\r\n\r\n", false, Framing::kNone},
      {"HTTP/1.1 100 Continue\r\n\r\n", false, Framing::kNone},
  };
  for (const auto& c : cases) {
    ResponseHead head;
    ASSERT_EQ(ParseResponseHead(c.head, kResponseLimits, c.to_head, &head), Rule::kNone);
    EXPECT_EQ(head.framing, c.framing) << c.head;
  }
}

}  // namespace
}  // namespace torpor::router
