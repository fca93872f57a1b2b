#pragma once
// HTTP/1.1 requests over libcurl, for object stores and the endpoints that hand out credentials.
//
// One request is one call that blocks; it is never repeated here and follows no redirect.
// Thread-safe. Connections are kept and used again, the youngest first; the one of a request that
// failed is closed. A transfer that stalls (less than 1 KiB/s) is given up after `silence_max`.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"

namespace torpor::objstore {

using Headers = std::vector<std::pair<std::string, std::string>>;  // names in lower case

struct HttpRequest {
  std::string method;
  std::string url;
  Headers headers;
  std::string_view body;  // outlives the call
  Duration connect_max = std::chrono::seconds(5);
  Duration silence_max = std::chrono::seconds(20);
  // Libcurl sends a request again by itself when a kept connection turns out to be closed. On a new
  // connection it does not, so the caller knows that the request was sent once.
  bool new_connection = false;
  bool direct = false;  // never through a proxy
};

struct HttpResponse {
  int curl_code = 0;  // 0 = a whole answer came; else what libcurl says
  int status = 0;     // 0 = not even its head came
  Headers headers;
  std::string body;  // without what the sink took; at most kHttpBodyBytesMax

  std::string_view Header(std::string_view name) const;  // empty when there is none
  bool ok() const { return curl_code == 0 && status >= 200 && status < 300; }
};

inline constexpr size_t kHttpBodyBytesMax = 2 << 20;

// Takes the body of an answer with a 2xx status piece by piece, with the head of the answer; an
// error ends the request.
using HttpSink = std::function<Status(const HttpResponse& head, std::string_view piece)>;

class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  // An error is one of `sink`'s; everything else is a response.
  StatusOr<HttpResponse> Do(const HttpRequest& request, const HttpSink& sink = {}) EXCLUDES(mu_);

 private:
  class Connection;
  std::unique_ptr<Connection> Take() EXCLUDES(mu_);

  Mutex mu_;
  std::vector<std::unique_ptr<Connection>> idle_ GUARDED_BY(mu_);
};

// What libcurl calls this error; holds no part of the request.
std::string CurlErrorName(int curl_code);

// Everything but A-Za-z0-9 and -._~ as %XX; '/' stays when `keep_slash`.
std::string PercentEncode(std::string_view text, bool keep_slash);

}  // namespace torpor::objstore
