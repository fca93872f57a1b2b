#pragma once

// The counter actor: the smallest program that shows whether memory and files survive. Any path
// counts except /readyz, /state, the paths that exist to test proxies (/sse, /slow, /ws, /echo) and
// those that keep account of what was executed (/once, /executed).
// Only for the server's thread.

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>

#include "workloads/http/server.h"

namespace torpor::workloads::counter {

struct Options {
  std::string home_dir = "/home/counter";            // holds a.txt
  std::string random_file = "/random-content-file";  // written at start; ready when complete
  std::string system_info_dir = "/run/torpor/system-info";
  int64_t ready_delay_ms = 0;  // before random_file is written
};

// Which numbers of one client were executed. A client counts its requests up from 1 and has one
// under way at a time; numbers that never came are kept until they do.
class RequestLog {
 public:
  void Execute(int64_t number);
  // "executed E twice T skipped S"
  std::string ToString() const;

 private:
  int64_t last_ = 0, executed_ = 0, twice_ = 0;
  std::set<int64_t> skipped_;
};

class Counter : public http::App {
 public:
  Counter(http::Server* server, Options options);

  // Starts writing the random file and the log line that comes every 10 seconds.
  void Start();

  void OnRequest(http::Request request, http::Reply reply) override;
  std::unique_ptr<http::BodySink> OnHead(const http::Request& head,
                                         const http::Reply& reply) override;

 private:
  void WriteRandomFile();
  void LogPeriodically();
  void Count(const http::Reply& reply);
  void ServeEvents(const http::Request& request, const http::Reply& reply);
  void NextEvent(const http::Reply& reply, int64_t index, int64_t count, int64_t interval_ms);
  // Executes request `number` of `client` at once, answers after `ms`.
  void ServeOnce(const http::Request& request, const http::Reply& reply);
  void ServeExecuted(const http::Request& request, const http::Reply& reply);
  void ServeSlowly(const http::Request& request, const http::Reply& reply);
  std::string StateJson() const;

  http::Server* const server_;
  const Options options_;
  const std::string boot_uuid_;  // made once, so that clones of one snapshot share it
  uint64_t memory_count_ = 0;
  std::map<int64_t, RequestLog> requests_;  // by client
  uint64_t log_lines_ = 0;
  bool ready_ = false;
};

}  // namespace torpor::workloads::counter
