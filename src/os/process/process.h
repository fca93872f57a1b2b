#pragma once
// Child processes: started with posix_spawn (never fork), held by pidfd, waited for with a
// deadline.
//
//   SpawnOptions options;
//   options.stdout_fd = log.get();
//   ASSIGN_OR_RETURN(Process child, Spawn({"/usr/bin/runsc", "--version"}, options));
//   ASSIGN_OR_RETURN(ExitStatus status, child.Wait(deadline));
//
//   ASSIGN_OR_RETURN(CommandResult r, RunCommand({"ip", "link"}, {.deadline = deadline}));
//   if (!r.status.ok()) ...r.err...
//
// When a Reaper (reaper.h) is active in this process it collects every child, and Wait and
// RunCommand get the status from it; otherwise they collect it themselves. All functions are
// thread-safe; a Process belongs to one thread at a time. A child gets descriptors 0, 1 and 2 and
// nothing else, default signal actions, an empty signal mask and its own process group.
//
// Errors: NOT_FOUND when the program does not exist, DEADLINE_EXCEEDED, else by errno. That a
// program ran and failed is not an error but an ExitStatus.

#include <sys/types.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "os/process/confine.h"

namespace torpor::os {

struct ExitStatus {
  int code = 0;    // of exit(2); 0 when a signal ended it
  int signal = 0;  // that ended it; 0 when it exited
  bool ok() const { return code == 0 && signal == 0; }
  int ShellCode() const { return signal != 0 ? 128 + signal : code; }
  std::string ToString() const;  // "exit code 3", "signal 9 (Killed)"
  bool operator==(const ExitStatus&) const = default;
};

struct SpawnOptions {
  std::vector<std::string> env;  // added to or replacing entries of ours; NAME=value
  bool clear_env = false;        // start from an empty environment instead of ours
  std::string cwd;               // empty = ours
  // Not owned; -1 = /dev/null.
  int stdin_fd = -1;
  int stdout_fd = -1;
  int stderr_fd = -1;
  std::vector<int> blocked_signals;  // at its start; all others are not blocked
  // What it may do with files; unset = what we may. UNIMPLEMENTED when the kernel cannot.
  std::optional<Confinement> confinement;
};

struct ChildExit;

// A direct child. Destruction neither kills it nor waits: without a Reaper a child that was never
// waited for stays a zombie until we exit.
class Process {
 public:
  Process() = default;
  ~Process();
  Process(Process&&) noexcept;
  Process& operator=(Process&&) noexcept;

  pid_t pid() const { return pid_; }
  int pidfd() const { return pidfd_.get(); }  // readable when the process has ended
  // DEADLINE_EXCEEDED leaves the process running. May be called again; the status is kept.
  StatusOr<ExitStatus> Wait(MonotonicTime deadline);
  // OK also when it has already ended.
  Status Signal(int signal) const;
  // The whole process group it leads.
  Status SignalGroup(int signal) const;

 private:
  friend StatusOr<Process> Spawn(const std::vector<std::string>&, const SpawnOptions&);
  pid_t pid_ = -1;
  UniqueFd pidfd_;
  std::shared_ptr<ChildExit> exit_;  // shared with the reaper
};

// argv[0] without a slash is searched in PATH.
StatusOr<Process> Spawn(const std::vector<std::string>& argv, const SpawnOptions& options = {});

struct CommandOptions {
  MonotonicTime deadline;             // at which its process group is killed
  std::string input;                  // written to its standard input
  size_t output_bytes_max = 1 << 20;  // kept of each stream; the rest is read and dropped
  std::vector<std::string> env;
  std::string cwd;
  std::optional<Confinement> confinement;
};

struct CommandResult {
  ExitStatus status;
  std::string out;
  std::string err;
  bool truncated = false;
};

// Runs a program to its end. Output that a left-behind grandchild still holds open is not waited
// for longer than 100 ms after the program ended.
StatusOr<CommandResult> RunCommand(const std::vector<std::string>& argv,
                                   const CommandOptions& options);
// The same, and an exit other than 0 is INTERNAL with the last line of its standard error.
StatusOr<std::string> CommandOutput(const std::vector<std::string>& argv,
                                    const CommandOptions& options);

// Opens a pidfd (close-on-exec). NOT_FOUND when there is no such process.
StatusOr<UniqueFd> OpenPidfd(pid_t pid);
// True when the process behind `pidfd` has ended; waits for that until `deadline`.
bool WaitPidfd(int pidfd, MonotonicTime deadline);
// pidfd_send_signal; OK when the process has already ended.
Status SignalPidfd(int pidfd, int signal);

}  // namespace torpor::os
