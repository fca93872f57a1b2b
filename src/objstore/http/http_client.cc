#include "objstore/http/http_client.h"

#include <curl/curl.h>

#include "base/log.h"

namespace torpor::objstore {
namespace {

constexpr size_t kIdleMax = 64;
constexpr long kReceiveBytes = 256 << 10;
constexpr long kStallBytesPerSecond = 1024;
constexpr size_t kHeadersMax = 128;

std::string Lower(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return out;
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && strchr(" \t\r\n", text.front()) != nullptr) text.remove_prefix(1);
  while (!text.empty() && strchr(" \t\r\n", text.back()) != nullptr) text.remove_suffix(1);
  return text;
}

long Milliseconds(Duration d) {
  return static_cast<long>(std::chrono::duration_cast<std::chrono::milliseconds>(d).count());
}

// One request under way; the callbacks of libcurl get a pointer to it.
struct Transfer {
  HttpResponse response;
  const HttpSink* sink = nullptr;
  Status sink_status;
};

size_t OnHeader(char* data, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  HttpResponse& response = transfer->response;
  const std::string_view line(data, size * count);
  if (line.rfind("HTTP/", 0) == 0) {  // an interim answer may have come before
    const size_t space = line.find(' ');
    response.status = space == std::string_view::npos ? 0 : atoi(line.data() + space + 1);
    response.headers.clear();
    return line.size();
  }
  const size_t colon = line.find(':');
  if (colon != std::string_view::npos && response.headers.size() < kHeadersMax) {
    response.headers.emplace_back(Lower(line.substr(0, colon)), Trim(line.substr(colon + 1)));
  }
  return line.size();
}

size_t OnBody(char* data, size_t size, size_t count, void* user) {
  auto* transfer = static_cast<Transfer*>(user);
  HttpResponse& response = transfer->response;
  const std::string_view piece(data, size * count);
  const bool good = response.status >= 200 && response.status < 300;
  if (good && *transfer->sink) {
    transfer->sink_status = (*transfer->sink)(response, piece);
    return transfer->sink_status.ok() ? piece.size() : 0;
  }
  if (response.body.size() + piece.size() > kHttpBodyBytesMax) return 0;
  response.body.append(piece);
  return piece.size();
}

}  // namespace

// A libcurl handle: it keeps its connection after a request.
class HttpClient::Connection {
 public:
  Connection() : handle_(curl_easy_init()) { CHECK(handle_ != nullptr); }
  ~Connection() {
    curl_slist_free_all(headers_);
    curl_easy_cleanup(handle_);
  }
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void Do(const HttpRequest& request, Transfer* transfer) {
    curl_easy_reset(handle_);
    SetRequest(request);
    SetHeaders(request.headers);
    curl_easy_setopt(handle_, CURLOPT_HEADERFUNCTION, OnHeader);
    curl_easy_setopt(handle_, CURLOPT_HEADERDATA, transfer);
    curl_easy_setopt(handle_, CURLOPT_WRITEFUNCTION, OnBody);
    curl_easy_setopt(handle_, CURLOPT_WRITEDATA, transfer);
    transfer->response.curl_code = curl_easy_perform(handle_);
  }

 private:
  void SetRequest(const HttpRequest& request) {
    curl_easy_setopt(handle_, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(handle_, CURLOPT_PROTOCOLS_STR, "http,https");
    curl_easy_setopt(handle_, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
    curl_easy_setopt(handle_, CURLOPT_BUFFERSIZE, kReceiveBytes);
    curl_easy_setopt(handle_, CURLOPT_UPLOAD_BUFFERSIZE, kReceiveBytes);
    curl_easy_setopt(handle_, CURLOPT_CONNECTTIMEOUT_MS, Milliseconds(request.connect_max));
    curl_easy_setopt(handle_, CURLOPT_LOW_SPEED_LIMIT, kStallBytesPerSecond);
    curl_easy_setopt(handle_, CURLOPT_LOW_SPEED_TIME,
                     std::max(1L, Milliseconds(request.silence_max) / 1000));
    curl_easy_setopt(handle_, CURLOPT_FRESH_CONNECT, request.new_connection ? 1L : 0L);
    if (request.direct) curl_easy_setopt(handle_, CURLOPT_NOPROXY, "*");
    curl_easy_setopt(handle_, CURLOPT_URL, request.url.c_str());
    if (request.method == "HEAD") {
      curl_easy_setopt(handle_, CURLOPT_NOBODY, 1L);
    } else if (request.method == "PUT" || request.method == "POST") {
      curl_easy_setopt(handle_, CURLOPT_POST, 1L);
      curl_easy_setopt(handle_, CURLOPT_POSTFIELDS,
                       request.body.empty() ? "" : request.body.data());
      curl_easy_setopt(handle_, CURLOPT_POSTFIELDSIZE_LARGE,
                       static_cast<curl_off_t>(request.body.size()));
    }
    if (request.method != "HEAD") {
      curl_easy_setopt(handle_, CURLOPT_CUSTOMREQUEST, request.method.c_str());
    }
  }

  void SetHeaders(const Headers& headers) {
    curl_slist_free_all(headers_);
    headers_ = nullptr;
    bool has_type = false;
    for (const auto& [name, value] : headers) {
      has_type = has_type || name == "content-type";
      headers_ = curl_slist_append(headers_, (name + ": " + value).c_str());
    }
    // Without a wait for 100-continue; and libcurl's own type would say that this is a form.
    headers_ = curl_slist_append(headers_, "Expect:");
    if (!has_type) headers_ = curl_slist_append(headers_, "Content-Type:");
    curl_easy_setopt(handle_, CURLOPT_HTTPHEADER, headers_);
  }

  CURL* const handle_;
  curl_slist* headers_ = nullptr;
};

std::string_view HttpResponse::Header(std::string_view name) const {
  for (const auto& [key, value] : headers) {
    if (key == name) return value;
  }
  return "";
}

HttpClient::HttpClient() {
  static const CURLcode kReady = curl_global_init(CURL_GLOBAL_DEFAULT);
  CHECK(kReady == CURLE_OK);
}

HttpClient::~HttpClient() = default;

std::unique_ptr<HttpClient::Connection> HttpClient::Take() {
  {
    MutexLock lock(&mu_);
    if (!idle_.empty()) {
      auto connection = std::move(idle_.back());
      idle_.pop_back();
      return connection;
    }
  }
  return std::make_unique<Connection>();
}

StatusOr<HttpResponse> HttpClient::Do(const HttpRequest& request, const HttpSink& sink) {
  std::unique_ptr<Connection> connection = Take();
  Transfer transfer;
  transfer.sink = &sink;
  connection->Do(request, &transfer);
  if (!transfer.sink_status.ok()) return std::move(transfer.sink_status);
  if (transfer.response.curl_code == 0) {
    MutexLock lock(&mu_);
    if (idle_.size() < kIdleMax) idle_.push_back(std::move(connection));
  }
  return std::move(transfer.response);
}

std::string CurlErrorName(int curl_code) {
  return curl_easy_strerror(static_cast<CURLcode>(curl_code));
}

std::string PercentEncode(std::string_view text, bool keep_slash) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  std::string out;
  for (char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '.' || c == '_' || c == '~' || (c == '/' && keep_slash);
    if (plain) {
      out += c;
    } else {
      const auto byte = static_cast<unsigned char>(c);
      out += {'%', kDigits[byte >> 4], kDigits[byte & 15]};
    }
  }
  return out;
}

}  // namespace torpor::objstore
