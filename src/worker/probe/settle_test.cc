#include "worker/probe/settle.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "model/reasons.h"

namespace torpor::worker {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class SettleTest : public ::testing::Test {
 protected:
  SettleTest() : listener_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    address_.sin_family = AF_INET;
    address_.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address_);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address_), size), 0);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &size), 0);
  }
  StatusOr<UniqueFd> Dial(int port) {
    ports_.push_back(port);
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    (void)connect(fd.get(), reinterpret_cast<sockaddr*>(&address_), sizeof(address_));
    return fd;
  }
  bool Settle(Duration timeout, const std::vector<int>& wake_fds) {
    return WaitUntilSettled([this](int port) { return Dial(port); }, Clock::Real()->Now() + timeout,
                            wake_fds, Clock::Real());
  }
  // From here on connection requests are not answered.
  void FallSilent() {
    EXPECT_EQ(listen(listener_.get(), 0), 0);
    for (int i = 0; i < 2; ++i) {
      ASSERT_OK_AND_ASSIGN(UniqueFd fd, Dial(0));
      waiting_.push_back(std::move(fd));
    }
    ports_.clear();
  }

  UniqueFd listener_;
  sockaddr_in address_ = {};
  std::vector<int> ports_;
  std::vector<UniqueFd> waiting_;
};

TEST_F(SettleTest, TwoRefusalsOnThePortOfNobody) {
  EXPECT_TRUE(Settle(seconds(10), {}));
  EXPECT_EQ(ports_, (std::vector<int>{0, 0}));
}

TEST_F(SettleTest, EndsWithItsDeadlineWhenNothingAnswers) {
  FallSilent();
  MonotonicTime begin = Clock::Real()->Now();
  EXPECT_FALSE(Settle(milliseconds(30), {}));
  EXPECT_GE(Clock::Real()->Now() - begin, milliseconds(30));
  EXPECT_EQ(ports_.size(), 1u);
}

TEST_F(SettleTest, EndsWhenWoken) {
  FallSilent();
  UniqueFd wake(eventfd(1, EFD_CLOEXEC));
  MonotonicTime begin = Clock::Real()->Now();
  EXPECT_FALSE(Settle(seconds(60), {wake.get()}));
  EXPECT_LT(Clock::Real()->Now() - begin, seconds(30));
}

TEST_F(SettleTest, FailsWhenNothingCanBeDialled) {
  auto dial = [](int) -> StatusOr<UniqueFd> { return Fail(reasons::kInternal, "gone"); };
  EXPECT_FALSE(WaitUntilSettled(dial, Clock::Real()->Now() + seconds(60), {}, Clock::Real()));
}

}  // namespace
}  // namespace torpor::worker
