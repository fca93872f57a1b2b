#pragma once

// Values of HTTP/1.1 that the parser makes and applications read. Plain data, no I/O.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace torpor::workloads::http {

using Headers = std::vector<std::pair<std::string, std::string>>;

struct Request {
  std::string method;
  std::string path;   // without the query, not percent-decoded
  std::string query;  // after '?', not percent-decoded
  Headers headers;    // names in lower case
  std::string body;   // complete when OnRequest gets it; empty for streamed bodies
  int minor_version = 1;
  bool keep_alive = true;
  bool chunked = false;
  bool expect_continue = false;
  std::optional<uint64_t> content_length;

  // Value of the first header with this lower-case name; empty if there is none.
  std::string_view Header(std::string_view name) const;

  // Value of a query parameter; nothing if it is absent.
  std::optional<std::string_view> Parameter(std::string_view name) const;
};

struct Response {
  int status = 200;
  std::string content_type = "text/plain; charset=utf-8";
  Headers headers;
  std::string body;
};

Response TextResponse(int status, std::string body);

std::string_view ReasonPhrase(int status);

}  // namespace torpor::workloads::http
