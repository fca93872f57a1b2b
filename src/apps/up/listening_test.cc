#include "apps/up/listening.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/unique_fd.h"

namespace torpor::up {
namespace {

TEST(ParseProcNetTcpTest, OnlyListeners) {
  const char kText[] =
      "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout "
      "inode\n"
      "   0: 0100007F:1E14 00000000:0000 0A 00000000:00000000 00:00000000 00000000   999   0 101 1 "
      "0 1\n"
      "   1: 0100007F:1E15 0100007F:A000 01 00000000:00000000 00:00000000 00000000   999   0 102 1 "
      "0 1\n"
      "   2: 00000000000000000000000001000000:0050 00000000000000000000000000000000:0000 0A "
      "00000000:00000000 00:00000000 00000000     0        0 103 1 0 1\n"
      "   3: nonsense 0 0A\n   4: 0100007F:1E1 0 0A 0 0 0\n\n";
  EXPECT_THAT(ParseProcNetTcp(kText), testing::ElementsAre(ListeningSocket{101, "127.0.0.1:7700"},
                                                           ListeningSocket{103, "[::1]:80"}));
}

TEST(ListeningAddressesTest, FindsOurOwnSocket) {
  UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(bind(listener.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  ASSERT_EQ(getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_THAT(ListeningAddresses(getpid()), testing::IsEmpty());
  ASSERT_EQ(listen(listener.get(), 1), 0);
  EXPECT_THAT(ListeningAddresses(getpid()),
              testing::ElementsAre(fmt::format("127.0.0.1:{}", ntohs(address.sin_port))));
  EXPECT_THAT(ListeningAddresses(0x3ffffff), testing::IsEmpty());
}

}  // namespace
}  // namespace torpor::up
