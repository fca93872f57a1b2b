// Requests that two parsers could read differently, through the router to actors that read HTTP
// carelessly: an actor never sees a request that the router did not send.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "base/testing/matchers.h"
#include "router/testing/test_bed.h"

namespace torpor::router {
namespace {

constexpr char kHidden[] = "GET /smuggled HTTP/1.1\r\nHost: x\r\n\r\n";

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(tolower(c));
  return text;
}

// How a careless program finds out how long a body is.
enum class Careless { kLengthFirst, kChunkedFirst, kLastLength, kChunkedAnywhere };

size_t BodyLength(const std::string& head, Careless how, bool* chunked) {
  std::string lower = Lower(head);
  size_t at =
      how == Careless::kLastLength ? lower.rfind("content-length:") : lower.find("content-length:");
  size_t length = at == std::string::npos ? 0 : strtoull(lower.c_str() + at + 15, nullptr, 10);
  bool says_chunked = how == Careless::kChunkedAnywhere
                          ? lower.find("chunked") != std::string::npos
                          : lower.find("transfer-encoding: chunked") != std::string::npos;
  *chunked = says_chunked && !(how == Careless::kLengthFirst && at != std::string::npos);
  return length;
}

// Keeps the targets of all requests that such a program thinks it got.
class CarelessActor {
 public:
  explicit CarelessActor(Careless how) : how_(how) {}
  void operator()(Peer& peer) {
    while (true) {
      // A lone LF ends a line for it, too.
      std::string head = peer.ReadThrough("\n");
      if (head.empty()) return;
      for (std::string line; line != "\r\n" && line != "\n";) {
        line = peer.ReadThrough("\n");
        if (line.empty()) return;
        head += line;
      }
      {
        MutexLock lock(&mu_);
        seen_.push_back(head.substr(0, head.find('\n')));
      }
      bool chunked = false;
      size_t length = BodyLength(head, how_, &chunked);
      if (chunked) {
        while (true) {
          std::string size = peer.ReadThrough("\n");
          size_t n = strtoull(size.c_str(), nullptr, 16);
          if (size.empty()) return;
          if (n == 0) break;
          peer.ReadExactly(n + 2);
        }
        for (std::string line = "x"; line != "\r\n" && !line.empty();)
          line = peer.ReadThrough("\n");
      } else {
        peer.ReadExactly(length);
      }
      if (!peer.Send(Ok("ok"))) return;
    }
  }
  std::vector<std::string> seen() {
    MutexLock lock(&mu_);
    return seen_;
  }

 private:
  const Careless how_;
  Mutex mu_;
  std::vector<std::string> seen_ GUARDED_BY(mu_);
};

// Fields that frame a body of `kHidden` in ways that parsers disagree about.
std::vector<std::string> Corpus() {
  const std::string hidden = kHidden;
  const std::string length = "Content-Length: " + std::to_string(hidden.size()) + "\r\n";
  const std::string chunk = fmt::format("{:x}\r\n{}\r\n0\r\n\r\n", hidden.size(), hidden);
  const std::string empty_chunk = "0\r\n\r\n" + hidden;
  std::vector<std::string> all;
  auto add = [&](const std::string& fields, const std::string& body) {
    for (const char* method : {"POST", "GET"}) {
      all.push_back(std::string(method) + " /seen HTTP/1.1\r\nHost: " + kHost + "\r\n" + fields +
                    "\r\n" + body);
    }
  };
  // What is allowed: the hidden request is a body.
  add(length, hidden);
  add("Transfer-Encoding: chunked\r\n", chunk);
  add("transfer-encoding:\tchunked \r\n", chunk);
  add("Transfer-Encoding: CHUNKED\r\n", chunk);
  add("Transfer-Encoding: chunked\r\n",
      fmt::format("{:x};a=\"b\"\r\n{}\r\n0;x\r\n\r\n", hidden.size(), hidden));
  add("Transfer-Encoding: chunked\r\nTrailer: x-sum\r\n",
      fmt::format("{:x}\r\n{}\r\n0\r\nx-sum: 1\r\ncontent-length: 5\r\n\r\n", hidden.size(),
                  hidden));
  add("Connection: content-length, close\r\n" + length, hidden);
  add("Connection: transfer-encoding\r\nTransfer-Encoding: chunked\r\n", chunk);
  add("X: Transfer-Encoding: chunked\r\n" + length, hidden);
  // What is not: two lengths, a length and chunked, and every odd spelling.
  for (const char* coding : {"Transfer-Encoding: chunked",
                             "Transfer-Encoding : chunked",
                             "Transfer-Encoding:chunked",
                             "Transfer-Encoding: x, chunked",
                             "Transfer-Encoding: chunked, chunked",
                             "Transfer-Encoding: chunked, identity",
                             "Transfer-Encoding: identity",
                             "Transfer-Encoding: gzip",
                             "Transfer-Encoding: \"chunked\"",
                             "Transfer-Encoding: chunke\x64\v",
                             "Transfer-Encoding:\n chunked",
                             "Transfer-Encoding: xchunked",
                             "Transfer-Encoding: chunked;q=1",
                             "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
                             "Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
                             "Transfer_Encoding: chunked",
                             " Transfer-Encoding: chunked",
                             "X: a\r\n Transfer-Encoding: chunked",
                             "Transfer-Encoding\r\n: chunked",
                             "Transfer-\rEncoding: chunked",
                             "X: a\nTransfer-Encoding: chunked",
                             "X: a\rTransfer-Encoding: chunked"}) {
    add(length + coding + "\r\n", empty_chunk);
    add(std::string(coding) + "\r\n" + length, empty_chunk);
    add(std::string("Content-Length: 5\r\n") + coding + "\r\n", empty_chunk);
  }
  for (const char* lengths :
       {"Content-Length: 0\r\nContent-Length: 9", "Content-Length: 9, 9", "Content-Length: +0",
        "Content-Length: -1", "Content-Length: 0x0", "Content-Length: 0 0", "Content-Length: 0.0",
        "Content-Length: ", "Content-Length: 18446744073709551616",
        "Content-Length: 00000000000000000000000000", "Content-Length:\v0", "Content-Length : 0",
        "Content_Length: 0", "content-length: 0\r\nCONTENT-LENGTH: 0",
        "Content-Length: 0\r\nContent-Length: 0", "\tContent-Length: 0",
        "X: a\r\n\tContent-Length: 0", "X: a\nContent-Length: 0", "X: a\rContent-Length: 0"}) {
    add(std::string(lengths) + "\r\n", hidden);
    add(length + lengths + "\r\n", hidden);
  }
  // Broken chunks in a request that began well.
  for (const std::string& body :
       {"0\n\r\n" + hidden, "0\r\n\n" + hidden, "0x0\r\n\r\n" + hidden, "-1\r\n\r\n" + hidden,
        " 0\r\n\r\n" + hidden, "0 \r\n\r\n" + hidden, "+0\r\n\r\n" + hidden,
        "\r\n0\r\n\r\n" + hidden, "1\r\nab\r\n0\r\n\r\n" + hidden, "1\r\na0\r\n\r\n" + hidden,
        "g\r\n\r\n" + hidden, "00000000000000000\r\n\r\n" + hidden,
        "10000000000000000\r\n" + hidden, "0;\n\r\n\r\n" + hidden, "0\r\nX\r\n\r\n" + hidden,
        "0\r\nX : y\r\n\r\n" + hidden, "0\r\n X: y\r\n\r\n" + hidden}) {
    add("Transfer-Encoding: chunked\r\n", body);
  }
  // Request lines.
  for (const std::string& line :
       {std::string("POST /seen HTTP/1.1\nHost: "), std::string("POST /seen  HTTP/1.1\r\nHost: "),
        std::string("POST /seen HTTP/1.1 \r\nHost: "),
        std::string("POST\t/seen HTTP/1.1\r\nHost: "),
        std::string("POST /seen\rx HTTP/1.1\r\nHost: "),
        std::string("POST /seen HTTP/1.2\r\nHost: "), std::string("POST /seen HTTP/2.0\r\nHost: "),
        std::string("POST /seen\r\nHost: "), std::string(" POST /seen HTTP/1.1\r\nHost: "),
        std::string("POST /seen HTTP/1.1\r\n\r\nHost: ")}) {
    all.push_back(line + kHost + "\r\n" + length + "\r\n" + hidden);
  }
  all.push_back(std::string("POST /seen HTTP/1.0\r\nHost: ") + kHost +
                "\r\nTransfer-Encoding: chunked\r\n\r\n" + chunk);
  all.push_back(std::string("POST /seen HTTP/1.1\r\nHost: ") + kHost + "\r\nHost: other\r\n" +
                length + "\r\n" + hidden);
  return all;
}

TEST(SmugglingTest, I10_CarelessActorsSeeOnlyWhatTheRouterSent) {
  std::vector<std::string> corpus = Corpus();
  EXPECT_GT(corpus.size(), 150u);
  for (Careless how : {Careless::kLengthFirst, Careless::kChunkedFirst, Careless::kLastLength,
                       Careless::kChunkedAnywhere}) {
    CarelessActor actor(how);
    TestBed s([&actor](Peer& peer) { actor(peer); });
    // For the few whose body never comes.
    s.route.http.stream_idle_timeout = std::chrono::milliseconds(100);
    int passed = 0;
    for (const std::string& request : corpus) {
      Peer client = s.Client();
      client.Send(request);
      std::string head = client.ReadAnswer();
      passed += head.starts_with("HTTP/1.1 200 ") ? 1 : 0;
      // Whatever was wrong, what follows on this connection is not read as a request.
      if (head.starts_with("HTTP/1.1 400 ")) {
        EXPECT_EQ(client.ReadToEnd(), "") << request;
      }
    }
    for (const std::string& line : actor.seen()) {
      EXPECT_THAT(line, ::testing::HasSubstr(" /seen HTTP/1.1\r")) << static_cast<int>(how);
    }
    EXPECT_GE(passed, 14) << "what is allowed passes";
    EXPECT_LT(passed, 40) << "what is not does not";
  }
}

}  // namespace
}  // namespace torpor::router
