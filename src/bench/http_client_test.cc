// Against a server that answers with scripted bytes.
#include "bench/http_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

namespace torpor::bench {
namespace {

// Accepts connections one after the other; each request (up to the empty line and `body_bytes`)
// gets the next script, and after the last script of a connection it is closed.
class ScriptServer {
 public:
  explicit ScriptServer(std::vector<std::vector<std::string>> connections)
      : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    if (!listener_.valid()) {
      ADD_FAILURE() << "no socket";
      return;
    }
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listener_.get(), 8), 0);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, connections = std::move(connections)] {
      for (const auto& scripts : connections) Serve(scripts);
    });
  }
  ~ScriptServer() {
    if (thread_.joinable()) thread_.join();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

  std::vector<std::string> requests;  // read after destruction or an answer

 private:
  void Serve(const std::vector<std::string>& scripts) {
    UniqueFd fd(accept(listener_.get(), nullptr, nullptr));
    if (!fd.valid()) return;
    for (const std::string& script : scripts) {
      std::string request;
      char buffer[4096];
      while (request.find("\r\n\r\n") == std::string::npos) {
        ssize_t n = recv(fd.get(), buffer, sizeof buffer, 0);
        if (n <= 0) return;
        request.append(buffer, static_cast<size_t>(n));
      }
      requests.push_back(request);
      send(fd.get(), script.data(), script.size(), MSG_NOSIGNAL);
    }
  }

  UniqueFd listener_;
  int port_ = 0;
  std::thread thread_;
};

MonotonicTime Soon() { return Clock::Real()->Now() + std::chrono::seconds(10); }

TEST(HttpClientTest, KeepsTheConnectionAndReadsBothFramings) {
  ScriptServer server({{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nX-Thing:  a b \r\n\r\nhello",
                        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 503 No\r\nTransfer-Encoding: chunked"
                        "\r\ntorpor-reason: NO_CAPACITY\r\n\r\n3;x=y\r\nabc\r\n2\r\nde\r\n0\r\nT: 1"
                        "\r\n\r\n",
                        "HTTP/1.1 204 Nothing\r\n\r\n"}});
  HttpConnection connection(DialTcp(server.address()));
  auto first = connection.Exchange({"GET", "/a", "actor.example", "", ""}, Soon());
  ASSERT_TRUE(first.ok()) << first.status();
  EXPECT_EQ(first->body, "hello");
  EXPECT_EQ(first->Header("x-thing"), "a b");
  auto second = connection.Exchange({"POST", "/b", "h", "text/plain", ""}, Soon());
  ASSERT_TRUE(second.ok()) << second.status();
  EXPECT_EQ(second->status, 503);
  EXPECT_EQ(second->body, "abcde");
  EXPECT_EQ(second->Header("torpor-reason"), "NO_CAPACITY");
  auto third = connection.Exchange({}, Soon());
  ASSERT_TRUE(third.ok()) << third.status();
  EXPECT_EQ(third->status, 204);
  EXPECT_EQ(server.requests[0].substr(0, 40), "GET /a HTTP/1.1\r\nHost: actor.example\r\nCo");
}

TEST(HttpClientTest, AConnectionThatTheServerClosedWhileIdleIsNotUsedAgain) {
  const std::string answer = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
  ScriptServer server({{answer}, {answer}, {answer}});
  HttpConnection connection(DialTcp(server.address()));
  ASSERT_TRUE(connection.Exchange({}, Soon()).ok());
  // Its turn comes when the first one was closed.
  HttpConnection other(DialTcp(server.address()));
  ASSERT_TRUE(other.Exchange({}, Soon()).ok());
  auto again = connection.Exchange({}, Soon());
  EXPECT_TRUE(again.ok()) << again.status();
}

TEST(HttpClientTest, AnswerCutShortIsAnErrorAndTheNextRequestConnectsAgain) {
  ScriptServer server({{"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhel"},
                       {"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"}});
  HttpConnection connection(DialTcp(server.address()));
  auto cut = connection.Exchange({}, Soon());
  EXPECT_EQ(cut.status().code(), Code::kUnavailable);
  EXPECT_TRUE(ReasonOf(cut.status()).empty());
  EXPECT_TRUE(connection.Exchange({}, Soon()).ok());
}

TEST(HttpClientTest, ClosesWhenTheServerSaysSo) {
  ScriptServer server({{"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 1\r\n\r\na"},
                       {"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nb"}});
  HttpConnection connection(DialTcp(server.address()));
  EXPECT_EQ(connection.Exchange({}, Soon())->body, "a");
  EXPECT_EQ(connection.Exchange({}, Soon())->body, "b");
}

TEST(HttpClientTest, SilenceEndsAtTheDeadline) {
  // The first request is answered by nothing, and the connection stays open for a second.
  ScriptServer server({std::vector<std::string>{"", "unused"}});
  HttpConnection connection(DialTcp(server.address()));
  auto late = connection.Exchange({}, Clock::Real()->Now() + std::chrono::milliseconds(30));
  EXPECT_EQ(late.status().code(), Code::kDeadlineExceeded);
}

TEST(HttpClientTest, BadAddressesAreRefused) {
  for (const char* address : {"localhost", "127.0.0.1", "127.0.0.1:x", "127.0.0.1:70000"}) {
    HttpConnection connection(DialTcp(address));
    EXPECT_EQ(connection.Exchange({}, Soon()).status().code(), Code::kInvalidArgument) << address;
  }
}

}  // namespace
}  // namespace torpor::bench
