#include "worker/probe/http_probe.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"

namespace torpor::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Answers the n-th connection with the n-th text; an empty one resets the connection.
class Server {
 public:
  explicit Server(std::vector<std::string> answers) : answers_(std::move(answers)) {
    listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), sizeof(address_)), 0);
    EXPECT_EQ(listen(listener_.get(), 16), 0);
    socklen_t size = sizeof(address_);
    getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &size);
    thread_ = std::thread([this] { Serve(); });
  }
  ~Server() { thread_.join(); }

  DialFunction Dialer() {
    return [address = address_](int) -> StatusOr<UniqueFd> {
      UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
      (void)connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address));
      return fd;
    };
  }
  std::string request() const { return request_; }  // after the probe has ended

 private:
  void Serve() {
    for (const std::string& answer : answers_) {
      UniqueFd fd(accept(listener_.get(), nullptr, nullptr));
      char buffer[4096];
      ssize_t size = recv(fd.get(), buffer, sizeof(buffer), 0);
      if (size > 0) request_.assign(buffer, static_cast<size_t>(size));
      if (answer.empty()) {
        linger reset = {.l_onoff = 1, .l_linger = 0};
        setsockopt(fd.get(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
      } else {
        send(fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
      }
    }
    listener_.Reset();
  }
  std::vector<std::string> answers_;
  UniqueFd listener_;
  sockaddr_in address_ = {};
  std::string request_;
  std::thread thread_;
};

class HttpProbeTest : public ::testing::Test {
 protected:
  Status Probe(const DialFunction& dial, Duration timeout) {
    return WaitUntilReady({.path = "/ready?x=1", .port = 80}, dial, Clock::Real()->Now() + timeout,
                          {wake_.get()}, Clock::Real(), &report_);
  }
  UniqueFd wake_{eventfd(0, EFD_CLOEXEC)};
  ProbeReport report_;
};

TEST_F(HttpProbeTest, FirstAnswerIsEnough) {
  Server server({"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"});
  EXPECT_OK(Probe(server.Dialer(), seconds(10)));
  EXPECT_EQ(report_.attempts, 1);
  EXPECT_EQ(server.request().substr(0, 30), "GET /ready?x=1 HTTP/1.1\r\nHost:");
}

TEST_F(HttpProbeTest, ResetsAndOtherAnswersAreNotYet) {
  Server server({"", "HTTP/1.1 503 Busy\r\n\r\n", "SSH-2.0-x\r\n", "HTTP/1.0 200 OK\r\n\r\n"});
  EXPECT_OK(Probe(server.Dialer(), seconds(10)));
  EXPECT_EQ(report_.attempts, 4);
}

TEST_F(HttpProbeTest, NotReadyNamesTheLastProblem) {
  DialFunction refused;
  {
    Server gone({});
    refused = gone.Dialer();
  }
  Status status = Probe(refused, milliseconds(100));
  EXPECT_THAT(status, HasReason(Code::kInternal, "WORKLOAD_NOT_READY"));
  EXPECT_THAT(status, MessageHas("Connection refused"));
  EXPECT_GE(report_.attempts, 4);  // 0, 1, 3, 7 ms at the latest
}

TEST_F(HttpProbeTest, AnAttemptThatTheDeadlineCutsShortDoesNotHideTheProblem) {
  Server busy({"HTTP/1.1 503 Busy\r\n\r\n"});
  int silent[2];  // the other end reads nothing and answers nothing
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, silent), 0);
  UniqueFd first(silent[0]), second(silent[1]);
  int attempts = 0;
  Status status = Probe(
      [&](int port) -> StatusOr<UniqueFd> {
        return ++attempts == 1 ? busy.Dialer()(port) : StatusOr<UniqueFd>(std::move(first));
      },
      milliseconds(300));
  EXPECT_EQ(report_.attempts, 2);
  EXPECT_THAT(status, MessageHas("in 2 attempts; last: status 503"));
}

TEST_F(HttpProbeTest, AWakeUpEndsIt) {
  DialFunction refused;
  {
    Server gone({});
    refused = gone.Dialer();
  }
  eventfd_write(wake_.get(), 1);
  EXPECT_THAT(Probe(refused, std::chrono::hours(1)), HasCode(Code::kCancelled));
}

}  // namespace
}  // namespace torpor::worker
