#include "api/http/handler.h"

#include <arpa/inet.h>

#include <algorithm>

#include <fmt/format.h>

#include "api/http/json.h"
#include "base/trace.h"
#include "model/reasons.h"

namespace torpor::api {
namespace {

constexpr char kJson[] = "application/json";
constexpr char kHealthPath[] = "/healthz";

std::optional<std::string_view> Header(const HttpRequest& request, const std::string& name) {
  auto it = request.headers.find(name);
  if (it == request.headers.end()) return std::nullopt;
  return it->second;
}

std::string Lower(std::string_view text) {
  std::string out(text);
  std::transform(out.begin(), out.end(), out.begin(), [](unsigned char c) { return tolower(c); });
  return out;
}

HttpResponse ErrorResponse(int http_status, const Status& status) {
  HttpResponse response;
  response.status = http_status;
  response.headers.emplace_back("content-type", kJson);
  if (auto ms = RetryAfterMs(status)) {
    response.headers.emplace_back("retry-after", fmt::to_string((*ms + 999) / 1000));
  }
  response.body = ErrorJson(status);
  return response;
}

HttpResponse ErrorResponse(const Status& status) {
  return ErrorResponse(HttpStatus(status.code()), status);
}

// Without the port: "[::1]:80", "127.0.0.1:80", "localhost".
std::string HostName(std::string_view host) {
  if (!host.empty() && host.front() == '[') return std::string(host.substr(0, host.find(']') + 1));
  return Lower(host.substr(0, host.find(':')));
}

bool IsAddress(const std::string& host) {
  unsigned char buffer[sizeof(in6_addr)];
  if (inet_pton(AF_INET, host.c_str(), buffer) == 1) return true;
  return host.size() > 2 && host.front() == '[' && host.back() == ']' &&
         inet_pton(AF_INET6, host.substr(1, host.size() - 2).c_str(), buffer) == 1;
}

// application/json, perhaps with parameters of which only the UTF-8 charset is understood.
bool IsJsonType(std::string_view type) {
  std::string lower = Lower(type);
  lower.erase(
      std::remove_if(lower.begin(), lower.end(), [](char c) { return c == ' ' || c == '\t'; }),
      lower.end());
  return lower == kJson || lower == std::string(kJson) + ";charset=utf-8";
}

// The value of Connect-Timeout-Ms.
StatusOr<Duration> ParseTimeout(std::string_view text) {
  if (text.empty() || text.size() > 10 ||
      !std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; })) {
    return Fail(reasons::kFieldInvalid, "Connect-Timeout-Ms must be 1 to 10 digits");
  }
  return std::chrono::milliseconds(std::stoll(std::string(text)));
}

std::string Elapsed(Clock* clock, MonotonicTime start) {
  return fmt::to_string(
      std::chrono::duration_cast<std::chrono::microseconds>(clock->Now() - start).count());
}

// A server stream as lines of JSON. The head is sent with the first line, so that an error before
// it is an ordinary answer.
class LineStream : public ResponseStream {
 public:
  explicit LineStream(std::shared_ptr<HttpReply> reply) : reply_(std::move(reply)) {}

  void Write(const Message& message, std::function<void(bool)> written) override {
    auto line = PrintJson(message);
    if (!begun_) {
      begun_ = true;
      HttpResponse head;
      head.headers.emplace_back("content-type", "application/x-ndjson");
      reply_->Begin(std::move(head));
    }
    reply_->Write(line.ok() ? *line + "\n" : "", std::move(written));
  }

  void Finish(Status status) override {
    if (!begun_ && !status.ok()) return reply_->Send(ErrorResponse(status));
    if (!begun_) {
      HttpResponse head;
      head.headers.emplace_back("content-type", "application/x-ndjson");
      reply_->Begin(std::move(head));
    }
    if (status.ok()) return reply_->End();
    reply_->Write("{\"error\":" + ErrorJson(status) + "}\n",
                  [reply = reply_](bool) { reply->End(); });
  }

  void OnGone(std::function<void()> gone) override { reply_->OnGone(std::move(gone)); }

 private:
  const std::shared_ptr<HttpReply> reply_;
  bool begun_ = false;  // the producer writes one line at a time
};

}  // namespace

HttpHandler::HttpHandler(Dispatcher* dispatcher, const TokenAuthenticator* token, HttpRules rules,
                         Clock* clock)
    : dispatcher_(dispatcher), token_(token), rules_(std::move(rules)), clock_(clock) {}

Status HttpHandler::CheckOrigin(const HttpRequest& request) const {
  const std::string host = HostName(Header(request, "host").value_or(""));
  if (request.headers.count("host") != 1 ||
      (host != "localhost" && !IsAddress(host) &&
       std::find(rules_.hosts.begin(), rules_.hosts.end(), host) == rules_.hosts.end())) {
    return Fail(reasons::kNotAllowed,
                "Host must be an address, localhost, or a name allowed with --http-hosts");
  }
  auto origin = Header(request, "origin");
  if (origin && (request.headers.count("origin") != 1 ||
                 std::find(rules_.allowed_origins.begin(), rules_.allowed_origins.end(), *origin) ==
                     rules_.allowed_origins.end())) {
    return Fail(reasons::kNotAllowed,
                "web pages of this origin may not call; allow it with --http-allowed-origins");
  }
  return OkStatus();
}

std::optional<HttpResponse> HttpHandler::Refuse(const HttpRequest& request) const {
  if (Status status = CheckOrigin(request); !status.ok()) return ErrorResponse(status);
  if (request.target == kHealthPath && request.method == "GET") return std::nullopt;
  const Dispatcher::Method* method = dispatcher_->Find(request.target);
  if (method == nullptr || !method->json) {
    return ErrorResponse(
        404, Fail(reasons::kNotImplemented, "no such method; the path is /<service>/<method>"));
  }
  if (request.method != "POST") {
    HttpResponse response =
        ErrorResponse(405, Fail(reasons::kNotImplemented, "methods are called with POST"));
    response.headers.emplace_back("allow", "POST");
    return response;
  }
  if (request.headers.count("content-encoding") != 0 || request.headers.count("content-type") > 1 ||
      !IsJsonType(Header(request, "content-type").value_or(""))) {
    return ErrorResponse(415, Fail(reasons::kFieldInvalid,
                                   "Content-Type must be application/json, without encoding"));
  }
  auto authorization = Header(request, "authorization");
  if (Status status = token_->Check(authorization); !status.ok()) {
    HttpResponse response = ErrorResponse(status);
    response.headers.emplace_back("www-authenticate", "Bearer");
    return response;
  }
  return std::nullopt;
}

HttpResponse HttpHandler::TooLarge() {
  return ErrorResponse(413,
                       Fail(reasons::kFieldInvalid,
                            fmt::format("the body is larger than {} bytes", kHttpBodyBytesMax)));
}

void HttpHandler::Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) const {
  if (request.target == kHealthPath) {
    HttpResponse response;
    response.headers.emplace_back("content-type", "text/plain");
    response.body = "ok\n";
    return reply->Send(std::move(response));
  }
  const MonotonicTime start = clock_->Now();
  auto answer = [clock = clock_, start, reply](HttpResponse response) {
    response.headers.emplace_back("trailer-x-server-elapsed-us", Elapsed(clock, start));
    reply->Send(std::move(response));
  };
  const Dispatcher::Method* method = dispatcher_->Find(request.target);
  std::unique_ptr<Message> message = Dispatcher::NewRequest(*method);
  Call call;
  if (auto trace = Header(request, "traceparent"); trace && IsTraceparent(*trace)) {
    call.traceparent = *trace;
  }
  if (auto timeout = Header(request, "connect-timeout-ms")) {
    auto left = ParseTimeout(*timeout);
    if (!left.ok()) return answer(ErrorResponse(left.status()));
    call.deadline = AnswerBefore(start, *left);
  }
  if (Status parsed = ParseJson(request.body, message.get()); !parsed.ok()) {
    return answer(ErrorResponse(parsed));
  }
  if (method->descriptor->server_streaming()) {
    return dispatcher_->Stream(*method, std::move(message), call,
                               std::make_shared<LineStream>(std::move(reply)));
  }
  dispatcher_->Unary(*method, std::move(message), call,
                     [answer](StatusOr<std::shared_ptr<const Message>> result) {
                       if (!result.ok()) return answer(ErrorResponse(result.status()));
                       auto json = PrintJson(**result);
                       if (!json.ok()) return answer(ErrorResponse(json.status()));
                       HttpResponse response;
                       response.headers.emplace_back("content-type", kJson);
                       response.body = std::move(*json);
                       answer(std::move(response));
                     });
}

}  // namespace torpor::api
