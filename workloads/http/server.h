#pragma once

// A small HTTP/1.1 server for the workloads: one epoll thread, keep-alive, pipelining, streamed
// and chunked bodies in both directions, 100-continue and protocol upgrades.
//
// Ownership: Server owns listeners and connections; an App is owned by the caller and outlives the
// server. Threads: everything runs on the thread that calls Run, except Post and Stop, which any
// thread may call (Stop also from a signal handler). A handler that takes long copies its Reply,
// does the work on a WorkerPool and posts the answer.
//
// After a restore of the sandbox the listeners live on, open connections fail with ECONNRESET and
// are dropped, and timers that came due meanwhile fire at once.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "workloads/base/io.h"
#include "workloads/http/message.h"

namespace torpor::workloads::http {

class Connection;
class Server;

// Bytes after a 101 answer. Owned by the connection.
class Upgraded {
 public:
  virtual ~Upgraded() = default;

  // Takes what came from the peer and appends what is to be sent. Returning false ends the
  // connection once `out` has been sent.
  virtual bool OnData(std::string_view data, std::string* out) = 0;
};

// Receives a request body piece by piece. Owned by the connection.
class BodySink {
 public:
  virtual ~BodySink() = default;
  virtual void OnData(std::string_view data) = 0;
  virtual void OnEnd() = 0;
};

// The right to answer one request. Copies refer to the same request; when it has been answered or
// its connection is gone, calls do nothing. Only for the server's thread.
class Reply {
 public:
  Reply() = default;
  Reply(Server* server, uint64_t connection, uint64_t serial)
      : server_(server), connection_(connection), serial_(serial) {}

  // True while the request waits for an answer or for the rest of one.
  bool Open() const;

  // Answers completely.
  void Send(Response response) const;

  // Answers in pieces: Begin, any number of Write, End. Without a length the body is chunked.
  void Begin(const Response& head, std::optional<uint64_t> length) const;
  void Write(std::string_view data) const;
  void End() const;

  // Answers 101 and hands the connection over.
  void Upgrade(const Headers& headers, std::unique_ptr<Upgraded> upgraded) const;

  // Address of our side of the connection; empty if it is gone.
  std::string LocalAddress() const;

 private:
  Connection* Find() const;

  Server* server_ = nullptr;
  uint64_t connection_ = 0;
  uint64_t serial_ = 0;
};

class App {
 public:
  virtual ~App() = default;

  // A complete request. The answer may come later, through a copy of `reply`.
  virtual void OnRequest(Request request, Reply reply) = 0;

  // Called with the head before the body is read. A sink takes the body as it arrives, and then
  // OnRequest is not called for this request; null (the default) collects the body.
  virtual std::unique_ptr<BodySink> OnHead(const Request& head, const Reply& reply);

  // Largest collected body; more is answered with 413.
  virtual uint64_t MaxBodyBytes() const { return 1 << 20; }
};

class Server {
 public:
  Server();
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  // Listens on an IPv4 address ("" is every address) and a port (0 is any). Returns an empty
  // string and sets `bound` to "address:port", or says what went wrong.
  std::string Listen(const std::string& host, uint16_t port, App* app, std::string* bound);

  // Serves until Stop.
  void Run();

  void Stop();

  // Runs `task` on the server's thread.
  void Post(std::function<void()> task);

  // Runs `task` on the server's thread after a while.
  void After(std::chrono::milliseconds delay, std::function<void()> task);

 private:
  friend class Connection;
  friend class Reply;
  struct Listener {
    UniqueFd fd;
    App* app;
  };

  void Watch(int fd, uint64_t id, uint32_t events, bool add);
  void Dispatch(uint64_t id, uint32_t events);
  void Accept(Listener& listener);
  void WatchListeners(bool on);
  void RenewEpoll();
  void RunPosted();
  int RunTimers();
  void Drop(uint64_t id);

  UniqueFd epoll_;
  UniqueFd wakeup_;
  std::atomic<bool> stopping_ = false;

  // Only touched by the server's thread.
  bool accepting_ = true;
  uint64_t next_id_ = 1;
  std::map<uint64_t, Listener> listeners_;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::vector<std::unique_ptr<Connection>> dropped_;  // freed when no call is on their stack
  std::multimap<int64_t, std::function<void()>> timers_;

  std::mutex posted_mu_;
  std::vector<std::function<void()>> posted_;  // guarded by posted_mu_
};

// Splits "host:port" or ":port"; false if it is neither.
bool SplitAddress(std::string_view address, std::string* host, uint16_t* port);

}  // namespace torpor::workloads::http
