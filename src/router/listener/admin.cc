#include "router/listener/admin.h"

#include <boost/asio/write.hpp>

#include <fmt/format.h>

#include "router/answer/reply.h"
#include "router/h1/head.h"
#include "router/target/target.h"

namespace torpor::router {
namespace {

constexpr size_t kHeadMax = 16 << 10;
constexpr std::chrono::seconds kTimeout(10);

std::string Page(int status, std::string_view type, std::string_view body, bool head_only) {
  return fmt::format(
      "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n"
      "Connection: close\r\n\r\n{}",
      status, StatusText(status), type, body.size(), head_only ? "" : body);
}

}  // namespace

std::string AdminAnswer(std::string_view bytes, const AdminPages& pages) {
  constexpr std::string_view kText = "text/plain; charset=utf-8";
  RequestHead head;
  if (ParseRequestHead(bytes, HeadLimits(), &head) != Rule::kNone) {
    return Page(400, kText, "bad request\n", false);
  }
  bool head_only = head.method == "HEAD";
  const Field* host_field = head.Find(FieldId::kHost);
  auto host = NormalizeHost(host_field ? host_field->value : std::string_view());
  if (!host || !(host->empty() || *host == "localhost" || IsAddressHost(*host))) {
    return Page(403, kText, "use an address or localhost\n", head_only);
  }
  if (head.method != "GET" && !head_only) return Page(405, kText, "only GET\n", false);
  std::string_view path = head.target.substr(0, head.target.find('?'));
  if (path == "/healthz") return Page(200, kText, "ok\n", head_only);
  if (path == "/readyz") {
    bool ready = pages.ready();
    return Page(ready ? 200 : 503, kText, ready ? "ok\n" : "draining\n", head_only);
  }
  if (path == "/statusz") return Page(200, "application/json", pages.status(), head_only);
  if (path == "/metrics") {
    return Page(200, "text/plain; version=0.0.4", pages.metrics(), head_only);
  }
  return Page(404, kText, "/healthz /readyz /statusz /metrics\n", head_only);
}

void AdminConnection::Start() {
  deadline_.expires_after(kTimeout);
  deadline_.async_wait([self = shared_from_this()](const ErrorCode& error) {
    ErrorCode ignored;
    if (!error) self->socket_.close(ignored);
  });
  Read();
}

void AdminConnection::Read() {
  size_t room = in_.Prepare(1024, kHeadMax);
  if (room == 0) {
    deadline_.cancel();
    return;
  }
  socket_.async_read_some(
      net::buffer(in_.tail(), room), [self = shared_from_this()](const ErrorCode& error, size_t n) {
        if (!error) self->in_.Commit(n);
        HeadScanner scanner;
        HeadScanner::State state = scanner.Scan(self->in_.view());
        if (!error && state == HeadScanner::State::kMore) return self->Read();
        if (error || state == HeadScanner::State::kBad) {
          self->deadline_.cancel();
          return;
        }
        self->answer_ = AdminAnswer(self->in_.view().substr(0, scanner.size()), *self->pages_);
        net::async_write(self->socket_, net::buffer(self->answer_),
                         [self](const ErrorCode&, size_t) { self->deadline_.cancel(); });
      });
}

}  // namespace torpor::router
