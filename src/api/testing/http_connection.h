#pragma once
// A TCP connection for tests that look at HTTP byte by byte.

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>
#include <utility>

#include "base/unique_fd.h"

namespace torpor::api {

class Connection {
 public:
  explicit Connection(uint16_t port) : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_port = htons(port);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    timeval limit = {20, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  }
  void Send(const std::string& text) {
    ASSERT_EQ(send(fd_.get(), text.data(), text.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(text.size()));
  }
  // Everything until `text` was seen or the connection ends.
  std::string ReadUntil(const std::string& text) {
    char buffer[4096];
    while (received_.find(text) == std::string::npos) {
      ssize_t n = recv(fd_.get(), buffer, sizeof(buffer), 0);
      if (n <= 0) return std::exchange(received_, "");
      received_.append(buffer, static_cast<size_t>(n));
    }
    const size_t end = received_.find(text) + text.size();
    std::string out = received_.substr(0, end);
    received_.erase(0, end);
    return out;
  }
  std::string ReadAll() { return ReadUntil(std::string(1, '\0') + "never"); }
  void Close() { fd_.Reset(); }

 private:
  UniqueFd fd_;
  std::string received_;
};

}  // namespace torpor::api
