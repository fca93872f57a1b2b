#pragma once
// The guest of the fake runtime: its memory, what it answers, how it ends. Thread-safe.

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/sync.h"
#include "base/unique_fd.h"
#include "runtime/runtime.h"

namespace torpor::runtime {

class HttpListener;

// Name of the threads that answer HTTP, by which their processor time can be told from others'.
inline constexpr char kFakeGuestThread[] = "fake-guest";

// Which numbers of one client were executed. A client counts its requests up from 1 and has one
// under way at a time; numbers that never came are kept until they do.
class RequestLog {
 public:
  void Execute(int64_t number);
  // "executed E twice T skipped S"
  std::string ToString() const;
  // One line, and back.
  std::string Save() const;
  static RequestLog Load(const std::string& line);

 private:
  int64_t last_ = 0, executed_ = 0, twice_ = 0;
  std::set<int64_t> skipped_;
};

class FakeGuest {
 public:
  // `stdout_fd` is duplicated; -1 = none.
  FakeGuest(std::function<void(SandboxExit)> on_exit, int stdout_fd);
  ~FakeGuest();

  // The memory as bytes, and back. DATA_LOSS SNAPSHOT_CORRUPT.
  std::string Save() const EXCLUDES(mu_);
  Status Load(std::string_view image) EXCLUDES(mu_);

  // In the network namespace of `netns_path`, on `port`; without one on 127.0.0.1 and any port.
  Status ServeHttp(const std::string& netns_path, int port) EXCLUDES(mu_);
  int http_port() const EXCLUDES(mu_);

  StatusOr<std::string> Ask(const std::string& line) EXCLUDES(mu_);
  // Ends it; `news` calls on_exit. Only the first end counts: false when it had ended before.
  bool End(SandboxExit exit, bool news) EXCLUDES(mu_);
  bool ended() const EXCLUDES(mu_);

 private:
  std::string HttpAnswer(const std::string& path);
  std::string ServeOnce(const std::string& path);

  mutable Mutex mu_;
  std::function<void(SandboxExit)> on_exit_ GUARDED_BY(mu_);
  UniqueFd stdout_ GUARDED_BY(mu_);
  bool ended_ GUARDED_BY(mu_) = false;
  int64_t counter_ GUARDED_BY(mu_) = 0;
  std::map<std::string, std::string> files_ GUARDED_BY(mu_);
  std::map<int64_t, RequestLog> requests_ GUARDED_BY(mu_);  // by client
  CondVar ended_changed_;
  std::unique_ptr<HttpListener> http_ GUARDED_BY(mu_);  // declared last: its threads use the rest
};

// One thread per connection; GET and POST without bodies are enough for its users.
class HttpListener {
 public:
  // `answer` maps a path to a body; empty = 404.
  static StatusOr<std::unique_ptr<HttpListener>> Start(
      const std::string& netns_path, int port,
      std::function<std::string(const std::string&)> answer);
  ~HttpListener();  // closes every connection
  int port() const { return port_; }

 private:
  struct Connections;
  HttpListener() = default;
  UniqueFd listener_;
  int port_ = 0;
  std::unique_ptr<Connections> connections_;
};

}  // namespace torpor::runtime
