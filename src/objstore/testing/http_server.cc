#include "objstore/testing/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"

namespace torpor::objstore {
namespace {

std::string Lower(std::string text) {
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

// Reads until `buffer` has `bytes`, or a whole head when `bytes` is 0. False at the end.
bool Fill(int fd, std::string* buffer, size_t bytes) {
  char piece[65536];
  while (bytes > 0 ? buffer->size() < bytes : buffer->find("\r\n\r\n") == std::string::npos) {
    const ssize_t n = recv(fd, piece, sizeof piece, 0);
    if (n <= 0) return false;
    buffer->append(piece, static_cast<size_t>(n));
  }
  return true;
}

bool Send(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

TestRequest ParseHead(std::string_view head) {
  TestRequest request;
  size_t end = head.find("\r\n");
  const std::string_view first = head.substr(0, end);
  const size_t space = first.find(' ');
  request.method = first.substr(0, space);
  request.target = first.substr(space + 1, first.rfind(' ') - space - 1);
  const size_t question = std::min(request.target.find('?'), request.target.size());
  request.path = request.target.substr(0, question);
  request.query = request.target.substr(std::min(question + 1, request.target.size()));
  while (end + 2 < head.size()) {
    const size_t begin = end + 2;
    end = head.find("\r\n", begin);
    const std::string_view line = head.substr(begin, end - begin);
    const size_t colon = line.find(':');
    if (colon == std::string_view::npos) break;
    size_t value = colon + 1;
    while (value < line.size() && line[value] == ' ') ++value;
    request.headers[Lower(std::string(line.substr(0, colon)))] = line.substr(value);
  }
  return request;
}

}  // namespace

std::string TestRequest::Header(const std::string& name) const {
  auto it = headers.find(name);
  return it == headers.end() ? "" : it->second;
}

std::map<std::string, std::string> TestRequest::Query() const {
  std::map<std::string, std::string> out;
  for (size_t begin = 0; begin < query.size();) {
    const size_t end = std::min(query.find('&', begin), query.size());
    const std::string pair = query.substr(begin, end - begin);
    const size_t equals = std::min(pair.find('='), pair.size());
    out[PercentDecode(pair.substr(0, equals))] =
        PercentDecode(pair.substr(std::min(equals + 1, pair.size())));
    begin = end + 1;
  }
  return out;
}

std::string PercentDecode(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '%' && i + 2 < text.size()) {
      out += static_cast<char>(std::stoi(std::string(text.substr(i + 1, 2)), nullptr, 16));
      i += 2;
    } else {
      out += text[i];
    }
  }
  return out;
}

HttpServer::HttpServer(Handler handler) : handler_(std::move(handler)) {
  listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0);
  CHECK(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0);
  CHECK(listen(listener_.get(), 256) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { Accept(); });
}

HttpServer::~HttpServer() {
  stopping_ = true;
  shutdown(listener_.get(), SHUT_RDWR);
  acceptor_.join();
  std::vector<std::thread> threads;
  {
    MutexLock lock(&mu_);
    for (const UniqueFd& fd : open_) shutdown(fd.get(), SHUT_RDWR);
    threads.swap(threads_);
  }
  for (std::thread& thread : threads) thread.join();
}

std::string HttpServer::host() const { return fmt::format("127.0.0.1:{}", port_); }
std::string HttpServer::url() const { return "http://" + host(); }

void HttpServer::Accept() {
  while (!stopping_) {
    UniqueFd fd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd.valid()) return;
    const int on = 1;
    setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    ++connections_;
    const int number = fd.get();
    MutexLock lock(&mu_);
    open_.push_back(std::move(fd));
    threads_.emplace_back([this, number] { Serve(number); });
  }
}

// The descriptor stays open until the server ends, so that its number is not used again.
void HttpServer::Serve(int fd) {
  std::string buffer;
  while (!stopping_ && Fill(fd, &buffer, 0)) {
    const size_t head_bytes = buffer.find("\r\n\r\n") + 4;
    TestRequest request = ParseHead(std::string_view(buffer).substr(0, head_bytes - 2));
    const size_t body_bytes = strtoull(request.Header("content-length").c_str(), nullptr, 10);
    if (!Fill(fd, &buffer, head_bytes + body_bytes)) break;
    request.body = buffer.substr(head_bytes, body_bytes);
    buffer.erase(0, head_bytes + body_bytes);
    if (!Answer(fd, request, handler_(request))) break;
  }
  shutdown(fd, SHUT_RDWR);
}

bool HttpServer::Answer(int fd, const TestRequest& request, const TestResponse& response) {
  if (response.no_answer) return false;
  std::string head = fmt::format("HTTP/1.1 {} Status\r\n", response.status);
  bool has_length = response.status == 204;
  for (const auto& [name, value] : response.headers) {
    head += fmt::format("{}: {}\r\n", name, value);
    has_length = has_length || name == "content-length";
  }
  if (!has_length) head += fmt::format("content-length: {}\r\n", response.body.size());
  if (!Send(fd, head + "\r\n")) return false;
  if (request.method == "HEAD") return true;
  const bool whole = response.body.size() <= response.body_bytes_max;
  std::string_view body(response.body);
  body = body.substr(0, std::min(body.size(), response.body_bytes_max));
  if (response.body_bytes_per_second == 0) return Send(fd, body) && whole;
  while (!body.empty() && !stopping_) {
    const size_t n = std::min(body.size(), size_t{1} + response.body_bytes_per_second / 10u);
    if (!Send(fd, body.substr(0, n))) return false;
    body.remove_prefix(n);
    usleep(100'000);
  }
  return whole;
}

}  // namespace torpor::objstore
