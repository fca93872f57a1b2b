#include "bench/http_client.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>

namespace torpor::bench {
namespace {

constexpr size_t kLineMax = 64 << 10;
constexpr size_t kBodyMax = 256 << 20;

Status Broken(std::string_view what) { return Status(Code::kUnavailable, std::string(what)); }

Status WaitFor(int fd, short events, MonotonicTime deadline) {
  for (;;) {
    auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::Real()->Now());
    if (left.count() <= 0) return Status(Code::kDeadlineExceeded, "no answer in time");
    pollfd polled{fd, events, 0};
    int ready = poll(&polled, 1, static_cast<int>(std::min<int64_t>(left.count(), 1000)));
    if (ready > 0) return OkStatus();
    if (ready < 0 && errno != EINTR) return Broken("poll failed");
  }
}

std::string Lower(std::string text) {
  for (char& c : text) c = static_cast<char>(tolower(static_cast<unsigned char>(c)));
  return text;
}

std::string Trim(const std::string& text) {
  size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string::npos) return "";
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

bool ParseSize(std::string_view text, int base, size_t* size) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *size, base);
  return error == std::errc() && end == text.data() + text.size() && *size <= kBodyMax;
}

// A server may close a connection that nobody uses.
bool EndedWhileIdle(int fd) {
  char c;
  ssize_t n = recv(fd, &c, 1, MSG_PEEK | MSG_DONTWAIT);
  return n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR);
}

StatusOr<UniqueFd> Socket(int family) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Broken("socket");
  return fd;
}

StatusOr<UniqueFd> ConnectUnix(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof address.sun_path) return Broken("the path of the door is too long");
  path.copy(address.sun_path, path.size());
  ASSIGN_OR_RETURN(UniqueFd fd, Socket(AF_UNIX));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return Broken("connect to " + path + ": " + strerror(errno));
  }
  return fd;
}

}  // namespace

std::string HttpAnswer::Header(const std::string& name) const {
  auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

Dialer DialTcp(const std::string& address) {
  return [address](MonotonicTime) -> StatusOr<UniqueFd> {
    size_t colon = address.rfind(':');
    size_t port = 0;
    sockaddr_in to{};
    to.sin_family = AF_INET;
    if (colon == std::string::npos || !ParseSize(address.substr(colon + 1), 10, &port) ||
        port > 65535 || inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr) != 1) {
      return Error(Code::kInvalidArgument, "FIELD_INVALID", address + " is not IPv4:PORT");
    }
    to.sin_port = htons(static_cast<uint16_t>(port));
    ASSIGN_OR_RETURN(UniqueFd fd, Socket(AF_INET));
    int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0 &&
        errno != EINPROGRESS) {
      return Broken("connect to " + address + ": " + strerror(errno));
    }
    return fd;
  };
}

Dialer DialDoor(const std::string& address, const std::string& uid, int64_t generation, int port) {
  return [=](MonotonicTime deadline) -> StatusOr<UniqueFd> {
    const std::string prefix = "unix:";
    if (address.compare(0, prefix.size(), prefix) != 0) {
      return Error(Code::kInvalidArgument, "FIELD_INVALID", address + " is not unix:PATH");
    }
    ASSIGN_OR_RETURN(UniqueFd fd, ConnectUnix(address.substr(prefix.size())));
    const std::string target = fmt::format("{}.{}.actor.torpor:{}", uid, generation, port);
    const std::string head =
        fmt::format("CONNECT {0} HTTP/1.1\r\nHost: {0}\r\ntorpor-router: bench\r\n\r\n", target);
    if (send(fd.get(), head.data(), head.size(), MSG_NOSIGNAL) !=
        static_cast<ssize_t>(head.size())) {
      return Broken("the door takes no request");
    }
    // The answer is read byte by byte: what follows it belongs to the guest.
    std::string answer;
    while (answer.find("\r\n\r\n") == std::string::npos && answer.size() < kLineMax) {
      char c;
      ssize_t n = recv(fd.get(), &c, 1, 0);
      if (n == 1) {
        answer.push_back(c);
      } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        return Broken("the door closed: " + answer);
      } else {
        RETURN_IF_ERROR(WaitFor(fd.get(), POLLIN, deadline));
      }
    }
    if (answer.compare(0, 12, "HTTP/1.1 200") != 0) return Broken("the door said: " + answer);
    return fd;
  };
}

StatusOr<HttpAnswer> HttpConnection::Exchange(const HttpRequest& request, MonotonicTime deadline) {
  if (fd_.valid() && EndedWhileIdle(fd_.get())) Close();
  if (!fd_.valid()) {
    buffer_.clear();
    ASSIGN_OR_RETURN(fd_, dialer_(deadline));
  }
  auto answer = ExchangeOn(request, deadline);
  if (!answer.ok()) Close();
  return answer;
}

StatusOr<HttpAnswer> HttpConnection::ExchangeOn(const HttpRequest& request,
                                                MonotonicTime deadline) {
  std::string head = fmt::format("{} {} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\n",
                                 request.method, request.path, request.host, request.body.size());
  if (!request.content_type.empty()) head += "Content-Type: " + request.content_type + "\r\n";
  for (const auto& [name, value] : request.fields) head += name + ": " + value + "\r\n";
  head += "\r\n";
  RETURN_IF_ERROR(Send(head + request.body, deadline));
  bool keep = false;
  auto answer = ReadAnswer(deadline, &keep);
  if (answer.ok() && !keep) Close();
  return answer;
}

Status HttpConnection::Send(std::string_view bytes, MonotonicTime deadline) {
  while (!bytes.empty()) {
    ssize_t n = send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n > 0) {
      bytes.remove_prefix(static_cast<size_t>(n));
    } else if (n == 0 || errno == EAGAIN || errno == ENOTCONN || errno == EINTR) {
      RETURN_IF_ERROR(WaitFor(fd_.get(), POLLOUT, deadline));
    } else {
      return Broken(std::string("send: ") + strerror(errno));
    }
  }
  return OkStatus();
}

Status HttpConnection::Receive(MonotonicTime deadline) {
  char chunk[16 << 10];
  for (;;) {
    ssize_t n = recv(fd_.get(), chunk, sizeof chunk, 0);
    if (n > 0) {
      buffer_.append(chunk, static_cast<size_t>(n));
      return OkStatus();
    }
    if (n == 0) return Broken("the connection was closed before the end of the answer");
    if (errno != EAGAIN && errno != EINTR) return Broken(std::string("recv: ") + strerror(errno));
    RETURN_IF_ERROR(WaitFor(fd_.get(), POLLIN, deadline));
  }
}

Status HttpConnection::ReadLine(std::string* line, MonotonicTime deadline) {
  size_t end;
  while ((end = buffer_.find("\r\n")) == std::string::npos) {
    if (buffer_.size() > kLineMax) return Broken("a line of the answer is too long");
    RETURN_IF_ERROR(Receive(deadline));
  }
  *line = buffer_.substr(0, end);
  buffer_.erase(0, end + 2);
  return OkStatus();
}

Status HttpConnection::ReadBytes(size_t count, std::string* out, MonotonicTime deadline) {
  while (buffer_.size() < count) RETURN_IF_ERROR(Receive(deadline));
  out->append(buffer_, 0, count);
  buffer_.erase(0, count);
  return OkStatus();
}

Status HttpConnection::ReadChunks(std::string* out, MonotonicTime deadline) {
  for (;;) {
    std::string line;
    size_t size = 0;
    RETURN_IF_ERROR(ReadLine(&line, deadline));
    if (!ParseSize(std::string_view(line).substr(0, line.find(';')), 16, &size) ||
        out->size() + size > kBodyMax) {
      return Broken("bad chunk");
    }
    if (size == 0) break;
    RETURN_IF_ERROR(ReadBytes(size, out, deadline));
    RETURN_IF_ERROR(ReadLine(&line, deadline));
  }
  std::string trailer;
  do {
    RETURN_IF_ERROR(ReadLine(&trailer, deadline));
  } while (!trailer.empty());
  return OkStatus();
}

StatusOr<HttpAnswer> HttpConnection::ReadAnswer(MonotonicTime deadline, bool* keep) {
  HttpAnswer answer;
  std::string line;
  do {
    answer.headers.clear();
    RETURN_IF_ERROR(ReadLine(&line, deadline));
    if (line.size() < 12 || line.compare(0, 7, "HTTP/1.") != 0) return Broken("bad status line");
    answer.status = atoi(line.c_str() + 9);
    for (;;) {
      RETURN_IF_ERROR(ReadLine(&line, deadline));
      if (line.empty()) break;
      size_t colon = line.find(':');
      if (colon == std::string::npos) return Broken("bad header field");
      answer.headers[Lower(line.substr(0, colon))] = Trim(line.substr(colon + 1));
    }
  } while (answer.status / 100 == 1);
  *keep = Lower(answer.Header("connection")) != "close";
  if (answer.status == 204 || answer.status == 304) return answer;
  if (Lower(answer.Header("transfer-encoding")) == "chunked") {
    RETURN_IF_ERROR(ReadChunks(&answer.body, deadline));
    return answer;
  }
  size_t length = 0;
  if (!ParseSize(answer.Header("content-length"), 10, &length)) {
    return Broken("an answer without a length");
  }
  RETURN_IF_ERROR(ReadBytes(length, &answer.body, deadline));
  return answer;
}

}  // namespace torpor::bench
