#pragma once
// A small HTTP/1.1 server on loopback for tests: a handler answers each request, and may misbehave
// below HTTP as real networks do. One thread per connection.

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/sync.h"
#include "base/unique_fd.h"

namespace torpor::objstore {

struct TestRequest {
  std::string method;
  std::string target;                          // as it was sent
  std::string path;                            // still percent-encoded
  std::string query;                           // still percent-encoded
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;

  std::string Header(const std::string& name) const;
  std::map<std::string, std::string> Query() const;  // decoded
};

struct TestResponse {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  // How it misbehaves.
  bool no_answer = false;         // closes instead of an answer
  size_t body_bytes_max = ~0ull;  // closes after so many bytes of the body
  int body_bytes_per_second = 0;  // 0 = as fast as it goes
};

std::string PercentDecode(std::string_view text);

class HttpServer {
 public:
  using Handler = std::function<TestResponse(const TestRequest&)>;  // from any thread
  explicit HttpServer(Handler handler);
  ~HttpServer();
  std::string url() const;   // "http://127.0.0.1:1234"
  std::string host() const;  // "127.0.0.1:1234"
  int connections() const { return connections_; }

 private:
  void Accept();
  void Serve(int fd);
  bool Answer(int fd, const TestRequest& request, const TestResponse& response);

  const Handler handler_;
  UniqueFd listener_;
  int port_ = 0;
  std::atomic<int> connections_{0};
  std::atomic<bool> stopping_{false};
  Mutex mu_;
  std::vector<UniqueFd> open_ GUARDED_BY(mu_);
  std::vector<std::thread> threads_ GUARDED_BY(mu_);
  std::thread acceptor_;
};

}  // namespace torpor::objstore
