#pragma once
// What every role does around its own work: flags, log, signals, metrics, the admin listener.
//
//   int MoverCommand(const Args& args) {
//     Settings settings;
//     return RunRole(args, {.name = "mover",
//                           .title = "torpor mover: ...",
//                           .declare = [&](Options* o) { Declare(o, &settings); },
//                           .complete = [&] { return Complete(&settings); },
//                           .run = [&](Role& role) { return Run(settings, role); }});
//   }
//
// Belongs to the main thread.

#include <signal.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "apps/role/admin_listener.h"
#include "base/log.h"
#include "base/metrics.h"
#include "base/options.h"
#include "base/status.h"

namespace torpor {

class Role {
 public:
  Role(std::string name, std::string metrics_listen);

  MetricRegistry* metrics() { return &metrics_; }
  // Blocked in every thread from before the first one.
  const sigset_t& stop_signals() const { return stop_signals_; }

  // Logs "ready" with `fields`, serves the admin pages and returns at a stop signal. They are on
  // the socket `metrics_socket` unless --metrics-listen says something else; empty: the role has an
  // admin listener of its own. Metrics are read until this returns.
  Status ServeUntilSignal(const std::string& metrics_socket, LogFields fields);

 private:
  const std::string name_;
  const std::string metrics_listen_;
  MetricRegistry metrics_;
  sigset_t stop_signals_;
};

struct RoleSpec {
  std::string name;
  std::string title;  // first line of --help
  std::function<void(Options*)> declare;
  std::function<Status()> complete;  // after the flags were read; INVALID_ARGUMENT = exit code 2
  std::function<Status(Role&)> run;
  std::string metrics_socket_help;  // the default of --metrics-listen; empty: there is no such flag
};

// The exit code: 0 stopped by a signal, 1 failed, 2 wrong configuration.
int RunRole(const std::vector<std::string>& args, const RoleSpec& spec);

// Prints `error: ...` and returns the exit code.
int FailRole(const Status& status);

}  // namespace torpor
