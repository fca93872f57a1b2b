#pragma once
// One JSON line per request. No query string, no field values.

#include <string>
#include <string_view>

#include "base/time.h"
#include "router/park/wake_report.h"

namespace torpor::router {

struct AccessRecord {
  std::string_view client;
  std::string_view method;
  std::string_view path;    // Without the query string.
  std::string_view actor;   // <atespace>/<actor>, or empty.
  std::string_view reason;  // The router's, or why a stream was cut.
  std::string_view request_id;
  std::string_view trace_id;
  int status = 0;         // 0: the client left before an answer.
  uint64_t bytes_in = 0;  // Bodies.
  uint64_t bytes_out = 0;
  double total_ms = 0;
  double park_ms = 0;
  double actor_ms = 0;
  int64_t generation = 0;
  bool reused = false;  // The connection to the actor.
  WakeRole wake = WakeRole::kNone;
};

// Collects lines and writes them in one go. One per thread, not thread-safe. Lines are whole at any
// time in the file or pipe: what is written at once is below PIPE_BUF.
class AccessLog {
 public:
  // `fd` is borrowed; -1 = off.
  explicit AccessLog(int fd) : fd_(fd) {}
  ~AccessLog() { Flush(); }

  bool on() const { return fd_ >= 0; }
  void Write(const AccessRecord& record, WallTime now);
  void Flush();

 private:
  const int fd_;
  int64_t stamp_second_ = -1;  // The second that stamp_ shows.
  std::string stamp_;
  std::string buffer_;
  std::string line_;
};

}  // namespace torpor::router
