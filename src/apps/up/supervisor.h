#pragma once
// Keeps the roles of one machine running as child processes.
//
// Each role is started once, its output goes to its own log file, and it is started again when it
// ends: at once at first, then after a pause that doubles up to 5 s; 10 s of life reset the pause.
// A role that ends with exit code 2 has a configuration error and is not started again. Stop ends
// the roles in the reverse order of the list, SIGTERM first and SIGKILL after the role's grace.
// What a role's own children leave behind is re-parented to this process and reaped.
//
// The state of all roles is kept in a file (class R), so that `status` and `down` can read it and
// the next supervisor can end what a killed one left. Belongs to one thread.

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/time.h"
#include "os/process/process.h"
#include "os/process/reaper.h"

namespace torpor::up {

struct Role {
  std::string name;
  std::vector<std::string> argv;
  std::string log_path;
  Duration stop_grace = std::chrono::seconds(10);
  // Its start removes what a killed process of it left. So it never starts without getting that far
  // (SIGTERM is blocked; it has to unblock or wait for it), and one that does not run at a stop is
  // started once more.
  bool sweeps_at_start = false;
  // Its environment instead of ours, as NAME=value.
  std::optional<std::vector<std::string>> environment;
};

// One role in the state file.
struct RoleState {
  std::string name;
  pid_t pid = 0;  // 0 = not running
  // Field 22 of /proc/<pid>/stat, in clock ticks: with it a recycled pid is recognised.
  int64_t start_ticks = 0;
  int restarts = 0;
  std::string last_exit;
};

std::string SerializeStates(const std::vector<RoleState>& states);
// INVALID_ARGUMENT when `text` is no state file.
StatusOr<std::vector<RoleState>> ParseStates(const std::string& text);
// 0 when there is no such process.
int64_t StartTicks(pid_t pid);

// The pause before start number `restarts` (1 = first restart) of a role that lived `lived`.
Duration RestartPause(int quick_restarts);

class Supervisor {
 public:
  static StatusOr<std::unique_ptr<Supervisor>> Create(std::string state_path);

  // Ends roles that a killed supervisor left running, by the state file.
  void EndLeftovers();
  Status Start(std::vector<Role> roles);
  // Watches for `wait` at most, restarting what ended; returns early when a role ended or `wake_fd`
  // (-1 = none) is readable. FAILED_PRECONDITION with the last lines of its log when a role's first
  // start ends with a configuration error (exit code 2); after that a role is only ever tried
  // again.
  Status Watch(Duration wait, int wake_fd);
  void Stop();
  std::vector<RoleState> states() const;

 private:
  struct Child {
    Role role;
    os::Process process;
    bool running = false;
    int64_t start_ticks = 0;
    int restarts = 0;
    int quick_restarts = 0;
    MonotonicTime started;
    MonotonicTime next_start;
    std::string last_exit;
  };
  Supervisor(std::string state_path, std::unique_ptr<os::Reaper> reaper);
  Status StartChild(Child& child);
  Status Ended(Child& child, os::ExitStatus status);
  void PlanRestart(Child& child);
  void Restart(Child& child);
  void WriteState();

  const std::string state_path_;
  std::unique_ptr<os::Reaper> reaper_;
  std::vector<Child> children_;
};

// The last `lines` lines of a log file, for an error message.
std::string TailOf(const std::string& path, int lines);

}  // namespace torpor::up
