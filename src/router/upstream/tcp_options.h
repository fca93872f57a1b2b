#pragma once
// What is set on every TCP connection of the data plane.

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

namespace torpor::router {

inline void SetOption(int fd, int level, int name, int value) {
  // Tuning only: a connection without it still works.
  (void)setsockopt(fd, level, name, &value, sizeof(value));
}

// For a connection of either side: no delays, and a dead peer is noticed within a minute or two.
inline void TuneTcp(int fd) {
  SetOption(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  SetOption(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPIDLE, 60);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  SetOption(fd, IPPROTO_TCP, TCP_KEEPCNT, 6);
  SetOption(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 60'000);
}

}  // namespace torpor::router
