#include "apps/role/admin_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <filesystem>

#include "base/testing/matchers.h"

namespace torpor {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class AdminListenerTest : public ::testing::Test {
 protected:
  AdminListenerTest() {
    char name[] = "/tmp/torpor-admin-XXXXXX";
    dir_ = mkdtemp(name);
    pages_.ready = [this] { return ready_; };
    pages_.status = [] { return "{}\n"; };
    pages_.metrics = [] { return "torpor_x 1\n"; };
  }
  ~AdminListenerTest() override { std::filesystem::remove_all(dir_); }

  // Sends `request` and reads to the end.
  static std::string Exchange(int fd, const std::string& request) {
    EXPECT_EQ(send(fd, request.data(), request.size(), 0), static_cast<ssize_t>(request.size()));
    std::string out;
    char buffer[4096];
    for (ssize_t n = 0; (n = recv(fd, buffer, sizeof buffer, 0)) > 0;) {
      out.append(buffer, static_cast<size_t>(n));
    }
    return out;
  }
  std::string Get(const std::string& path, const std::string& host = "localhost") {
    UniqueFd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_.copy(address.sun_path, sizeof address.sun_path - 1);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    return Exchange(fd.get(), "GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n");
  }

  std::string dir_;
  std::string socket_;
  bool ready_ = true;
  router::AdminPages pages_;
};

TEST_F(AdminListenerTest, ServesThePagesOnASocketOfItsOwnUser) {
  socket_ = dir_ + "/m.sock";
  ASSERT_OK_AND_ASSIGN(auto listener, AdminListener::Start("unix:" + socket_, pages_));
  EXPECT_EQ(listener->address(), "unix:" + socket_);
  struct stat st{};
  ASSERT_EQ(stat(socket_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0777, 0600u);
  EXPECT_THAT(Get("/metrics"), StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(Get("/metrics"), HasSubstr("torpor_x 1\n"));
  EXPECT_THAT(Get("/healthz"), HasSubstr("ok\n"));
  EXPECT_THAT(Get("/other"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(Get("/metrics", "evil.example"), StartsWith("HTTP/1.1 403"));
  listener.reset();
  EXPECT_NE(access(socket_.c_str(), F_OK), 0);
}

TEST_F(AdminListenerTest, ReplacesTheSocketOfADeadProcess) {
  socket_ = dir_ + "/m.sock";
  {
    UniqueFd left(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    socket_.copy(address.sun_path, sizeof address.sun_path - 1);
    ASSERT_EQ(bind(left.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  }
  ASSERT_OK_AND_ASSIGN(auto listener, AdminListener::Start("unix:" + socket_, pages_));
  ready_ = false;
  EXPECT_THAT(Get("/readyz"), StartsWith("HTTP/1.1 503"));
}

TEST_F(AdminListenerTest, ServesOnTcpAndSaysWhichPort) {
  ASSERT_OK_AND_ASSIGN(auto listener, AdminListener::Start("127.0.0.1:0", pages_));
  const int port = atoi(listener->address().substr(listener->address().rfind(':') + 1).c_str());
  ASSERT_GT(port, 0);
  UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  ASSERT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_THAT(Exchange(fd.get(), "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"),
              HasSubstr("torpor_x 1\n"));
}

TEST_F(AdminListenerTest, RefusesWhatIsNoAddress) {
  for (const char* bad : {"", "unix:", "nowhere", "name.example:80", "127.0.0.1:http", ":80"}) {
    EXPECT_THAT(AdminListener::Start(bad, pages_), HasCode(Code::kInvalidArgument)) << bad;
  }
  EXPECT_THAT(AdminListener::Start("unix:" + dir_ + "/missing/m.sock", pages_),
              HasCode(Code::kNotFound));
}

}  // namespace
}  // namespace torpor
