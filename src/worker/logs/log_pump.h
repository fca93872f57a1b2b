#pragma once
// Drains the standard output and error of every container of a worker into log files.
//
//   auto session = pump->Open(std::move(logs_dir), generation, {"app"});
//   args.stdio = session->stdio();   ... the runtime starts the sandbox ...
//   session->CloseGuestEnds();
//   ... session->Finish(deadline);   // after the guest ended
//
// One thread reads all pipes, always, so that a guest never blocks on its own output. Each line
// becomes one line of JSON {time, container, stream, line, truncated, generation} in
// <container>.log (log_lines.h has the limits). LogPump is thread-safe and must outlive its
// sessions; a session is used by one operation at a time.

#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "os/fs/dir_fd.h"
#include "runtime/runtime.h"
#include "worker/logs/log_lines.h"

namespace torpor::worker {

class LogPump;

// The pipes of one container; the sandbox writes, the pump reads.
struct OutputPipes {
  UniqueFd stdout_read, stdout_write;
  UniqueFd stderr_read, stderr_write;
  static StatusOr<OutputPipes> Make();
};

class LogSession {
 public:
  ~LogSession();
  // Valid until CloseGuestEnds.
  std::map<std::string, runtime::ContainerStdio> stdio() const;
  void CloseGuestEnds();
  // Waits for the end of every stream, at most until `deadline`, then stops reading. Idempotent.
  void Finish(MonotonicTime deadline);
  // The newest lines of all containers, oldest first, each at most 400 bytes.
  std::string LastLines() const;

 private:
  friend class LogPump;
  struct State;
  explicit LogSession(std::shared_ptr<State> state) : state_(std::move(state)) {}
  std::shared_ptr<State> state_;
  std::map<std::string, std::pair<UniqueFd, UniqueFd>> guest_ends_;
};

class LogPump {
 public:
  static StatusOr<std::unique_ptr<LogPump>> Start(Clock* clock, LogLimits limits = {});
  ~LogPump();

  // Container names were checked by the caller; they become file names. `made` are pipes that exist
  // already, because the sandbox does; the others are made here.
  StatusOr<std::unique_ptr<LogSession>> Open(os::DirFd logs_dir, int64_t generation,
                                             const std::vector<std::string>& containers,
                                             std::map<std::string, OutputPipes> made = {});

 private:
  struct Stream;
  LogPump(Clock* clock, LogLimits limits) : clock_(clock), limits_(limits) {}
  void Run();
  Status Add(std::shared_ptr<Stream> stream) EXCLUDES(mu_);
  // Reads what is there; true when the stream has ended.
  bool Drain(Stream& stream);
  void Drop(Stream* stream) EXCLUDES(mu_);

  Clock* const clock_;
  const LogLimits limits_;
  UniqueFd epoll_;
  UniqueFd stop_;
  Mutex mu_;
  std::map<Stream*, std::shared_ptr<Stream>> streams_ GUARDED_BY(mu_);
  std::thread thread_;
};

}  // namespace torpor::worker
