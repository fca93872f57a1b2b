#include "objstore/credentials/token_endpoint.h"

#include <time.h>

#include <fstream>

#include "model/reasons.h"

namespace torpor::objstore {

StatusOr<std::string> AskEndpoint(HttpClient* http, HttpRequest request) {
  HttpResponse response;
  for (int tries = 0; tries < 2 && !response.ok(); ++tries) {
    ASSIGN_OR_RETURN(response, http->Do(request));
  }
  if (response.ok()) return std::move(response.body);
  const std::string& url = request.url;
  const size_t host = url.find("://") + 3;
  return Fail(
      reasons::kObjectStorageUnavailable,
      fmt::format("no credentials from {}: {}", url.substr(host, url.find('/', host) - host),
                  response.curl_code != 0 ? CurlErrorName(response.curl_code)
                                          : fmt::format("HTTP {}", response.status)));
}

StatusOr<std::string> AskMachine(HttpClient* http, const std::string& method,
                                 const std::string& url, Headers headers) {
  HttpRequest request;
  request.method = method;
  request.url = url;
  request.headers = std::move(headers);
  request.connect_max = std::chrono::seconds(1);
  request.silence_max = std::chrono::seconds(2);
  request.direct = true;
  return AskEndpoint(http, std::move(request));
}

StatusOr<std::string> ReadTokenFile(const std::string& path) {
  std::ifstream in(path);
  std::string token;
  if (in && std::getline(in, token) && !token.empty()) return token;
  return Fail(reasons::kStoreDenied, fmt::format("the file {} holds no token", path));
}

std::optional<WallTime> ParseRfc3339Seconds(const std::string& text) {
  tm parts = {};
  const char* end = strptime(text.c_str(), "%Y-%m-%dT%H:%M:%S", &parts);
  if (end == nullptr || *end != 'Z') return std::nullopt;
  return std::chrono::system_clock::from_time_t(timegm(&parts));
}

}  // namespace torpor::objstore
