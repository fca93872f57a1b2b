#pragma once
// JSON over HTTP without the sockets: what a request means and what is answered (the unary form of
// the Connect protocol; proto/README.md names the services).
//
// A transport first shows the head of a request, so that it can be refused before its body is read,
// then hands over the whole. Thread-safe; never blocks.

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "api/auth.h"
#include "api/dispatcher.h"
#include "base/status.h"
#include "base/time.h"

namespace torpor::api {

inline constexpr size_t kHttpBodyBytesMax = 4 << 20;

struct HttpRequest {
  std::string method;
  std::string target;
  std::multimap<std::string, std::string> headers;  // names in lower case
  std::string body;
};

struct HttpResponse {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

// Where an answer goes: Send once, or Begin, Write any number of times and End. Thread-safe.
class HttpReply {
 public:
  virtual ~HttpReply() = default;
  virtual void Send(HttpResponse response) = 0;
  // Head of an answer whose body comes in chunks.
  virtual void Begin(HttpResponse head) = 0;
  // `written(false)`: the client is gone. Never called before Write returns.
  virtual void Write(std::string chunk, std::function<void(bool)> written) = 0;
  virtual void End() = 0;
  // Called once when the client leaves before End; at once if it is gone already.
  virtual void OnGone(std::function<void()> gone) = 0;
};

struct HttpRules {
  // Names allowed in Host besides addresses and localhost.
  std::vector<std::string> hosts;
  // Origins of web pages that may call, such as https://console.example.com.
  std::vector<std::string> allowed_origins;
};

class HttpHandler {
 public:
  // `dispatcher`, `token` and `clock` must outlive the handler and every reply.
  HttpHandler(Dispatcher* dispatcher, const TokenAuthenticator* token, HttpRules rules,
              Clock* clock);

  // The refusal that the head of a request deserves, before its body is read. `request.body` is
  // not looked at.
  std::optional<HttpResponse> Refuse(const HttpRequest& request) const;
  // The answer to a body above kHttpBodyBytesMax.
  static HttpResponse TooLarge();
  // For a request that was not refused.
  void Handle(HttpRequest request, std::shared_ptr<HttpReply> reply) const;

 private:
  Status CheckOrigin(const HttpRequest& request) const;

  Dispatcher* const dispatcher_;
  const TokenAuthenticator* const token_;
  const HttpRules rules_;
  Clock* const clock_;
};

}  // namespace torpor::api
