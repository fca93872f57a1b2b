#include "workloads/testing/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

namespace torpor::workloads::testing {

Client::Client(uint16_t port) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const timeval patience{20, 0};
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) {
    fd_.Reset();
  }
}

Answer Client::Do(const std::string& method, const std::string& target, const std::string& body,
                  const std::string& more_headers) {
  std::string request = method + " " + target + " HTTP/1.1\r\nHost: test\r\n" + more_headers;
  if (!body.empty() || method == "POST") {
    request += "Content-Length: " + std::to_string(body.size()) + "\r\n";
  }
  if (!SendRaw(request + "\r\n" + body)) return Answer();
  return ReadAnswer(method == "HEAD");
}

bool Client::SendRaw(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

Answer Client::ReadAnswer(bool head_only) {
  Answer answer;
  const std::string first = TakeLine();
  if (!first.starts_with("HTTP/1.1 ")) return answer;
  const int status = std::atoi(first.c_str() + 9);
  for (std::string line = TakeLine(); !line.empty(); line = TakeLine()) {
    const size_t colon = line.find(": ");
    if (colon == std::string::npos) return answer;
    std::string name = line.substr(0, colon);
    for (char& c : name) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c + 32 : c);
    answer.headers[name] = line.substr(colon + 2);
  }
  if (head_only || status < 200) {
    answer.status = status;
  } else if (answer.headers.contains("content-length")) {
    const size_t size = std::strtoull(answer.headers["content-length"].c_str(), nullptr, 10);
    answer.body = ReadBytes(size);
    if (answer.body.size() == size) answer.status = status;
  } else if (answer.headers["transfer-encoding"] == "chunked") {
    while (true) {
      const size_t size = std::strtoull(TakeLine().c_str(), nullptr, 16);
      answer.body += ReadBytes(size);
      if (ReadBytes(2) != "\r\n") return answer;
      if (size == 0) break;
    }
    answer.status = status;
  } else {
    while (Fill()) {
    }
    answer.body = std::move(in_);
    answer.status = status;
  }
  return answer;
}

std::string Client::ReadBytes(size_t size) {
  while (in_.size() < size && Fill()) {
  }
  std::string bytes = in_.substr(0, size);
  in_.erase(0, bytes.size());
  return bytes;
}

bool Client::AtEnd() { return in_.empty() && !Fill(); }

bool Client::Fill() {
  char buffer[65536];
  ssize_t n;
  do {
    n = ::recv(fd_.get(), buffer, sizeof(buffer), 0);
  } while (n < 0 && errno == EINTR);
  if (n <= 0) return false;
  in_.append(buffer, static_cast<size_t>(n));
  return true;
}

std::string Client::TakeLine() {
  size_t end;
  while ((end = in_.find("\r\n")) == std::string::npos) {
    if (!Fill()) return "";
  }
  std::string line = in_.substr(0, end);
  in_.erase(0, end + 2);
  return line;
}

}  // namespace torpor::workloads::testing
