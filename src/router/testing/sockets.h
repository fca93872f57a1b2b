#pragma once
// Blocking sockets for tests: a peer that speaks byte by byte what a test wants to see. Every wait
// ends after ten seconds at the latest.

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <string>
#include <string_view>

#include "base/log.h"
#include "base/unique_fd.h"

namespace torpor::router {

class Peer {
 public:
  explicit Peer(UniqueFd fd) : fd_(std::move(fd)) {
    timeval limit{10, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
    setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
  }
  static Peer ConnectTcp(int port) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(port));
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0);
    return Peer(std::move(fd));
  }

  // False when the other side is gone.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // Through the empty line; what was there at the end if the stream ended.
  std::string ReadHead() { return ReadThrough("\r\n\r\n"); }
  std::string ReadThrough(std::string_view mark) {
    while (true) {
      size_t at = pending_.find(mark);
      if (at != std::string::npos) return Take(at + mark.size());
      if (!Fill()) return Take(pending_.size());
    }
  }
  // With its LF; empty at the end. Waits for as long as it takes.
  std::string ReadLine() {
    while (pending_.find('\n') == std::string::npos) {
      if (!Fill() && ended_) return {};
    }
    return Take(pending_.find('\n') + 1);
  }
  std::string ReadExactly(size_t n) {
    while (pending_.size() < n && Fill()) {
    }
    return Take(std::min(n, pending_.size()));
  }
  std::string ReadToEnd() {
    while (Fill()) {
    }
    return Take(pending_.size());
  }
  // A whole answer with Content-Length or chunked body; only the head's text and the raw body.
  std::string ReadAnswer(std::string* body = nullptr) {
    std::string head = ReadHead();
    std::string lower = head;
    for (char& c : lower) c = static_cast<char>(tolower(c));
    std::string text;
    size_t at = lower.find("content-length: ");
    if (at != std::string::npos) {
      text = ReadExactly(static_cast<size_t>(atoll(lower.c_str() + at + 16)));
    } else if (lower.find("transfer-encoding: chunked") != std::string::npos) {
      text = ReadThrough("0\r\n\r\n");
    }
    if (body != nullptr) *body = text;
    return head;
  }
  // Waits until the other side closed (or reset) the connection, throwing bytes away.
  bool WaitClosed() {
    pending_.clear();
    while (Fill()) pending_.clear();
    return ended_;
  }
  void ShutdownSend() { shutdown(fd_.get(), SHUT_WR); }
  void Close() { fd_.Reset(); }
  // Closing with this set sends a reset.
  void ResetOnClose() {
    linger hard{1, 0};
    setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &hard, sizeof(hard));
  }
  int fd() const { return fd_.get(); }

 private:
  bool Fill() {
    char bytes[16384];
    ssize_t n = recv(fd_.get(), bytes, sizeof(bytes), 0);
    if (n <= 0) {
      ended_ = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
      return false;
    }
    pending_.append(bytes, static_cast<size_t>(n));
    return true;
  }
  std::string Take(size_t n) {
    std::string out = pending_.substr(0, n);
    pending_.erase(0, n);
    return out;
  }

  UniqueFd fd_;
  std::string pending_;
  bool ended_ = false;
};

}  // namespace torpor::router
