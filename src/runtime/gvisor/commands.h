#pragma once
// Command lines of runsc and of the start helper. Pure functions.

#include <string>
#include <vector>

#include "base/metrics.h"
#include "runtime/gvisor/probe.h"

namespace torpor::gvisor {

// The files of one sandbox below its state directory. Each sandbox has a runsc root of its own, so
// that names of containers cannot collide and `rm -r` of the directory forgets everything.
struct StatePaths {
  explicit StatePaths(std::string state_dir);
  std::string state;
  std::string root;      // runsc --root
  std::string bundle;    // what we give to runsc; made from the agent's bundle
  std::string fs;        // unlinked file of the writable root file system
  std::string log;       // runsc's own logs, one per verb
  std::string pid_file;  // of the sentry
  std::string log_suffix;
  std::string LogOf(const std::string& verb) const { return log + "/" + verb + log_suffix; }

  // Of several containers in the sandbox: these are the root one's, that of `name` has a bundle, a
  // pid file and logs of its own.
  StatePaths OfApp(const std::string& name) const;
};

// The container's id for runsc: the last twelve letters and digits of the sandbox's id. Short,
// because runsc puts it into the path of a unix socket (107 bytes with the root); nearly unique,
// because runsc falls back to a shared directory when that path is too long.
std::string ContainerId(const std::string& sandbox_id);
// Of a container beside the root one. runsc takes the beginning of an id for the id, so none begins
// like another.
std::string AppId(const std::string& root_id, const std::string& name);

struct ControlCalls;

struct RunscTarget {
  std::string binary;  // absolute
  std::string platform;
  RunscFeatures features;
  CounterFamily captures;  // in a cgroup; by whether the sentry was isolated, "yes" or "no"
  const ControlCalls* control = nullptr;  // null = its control socket is not used
};

// Everything up to the verb.
std::vector<std::string> GlobalArguments(const RunscTarget& target, const StatePaths& paths,
                                         const std::string& verb);
std::vector<std::string> BootCommand(const RunscTarget& target, const StatePaths& paths,
                                     const std::string& id);
// A sandbox that waits for its guest.
std::vector<std::string> CreateCommand(const RunscTarget& target, const StatePaths& paths,
                                       const std::string& id);
std::vector<std::string> RestoreCommand(const RunscTarget& target, const StatePaths& paths,
                                        const std::string& id, const std::string& image_dir,
                                        bool direct);
std::vector<std::string> CheckpointCommand(const RunscTarget& target, const StatePaths& paths,
                                           const std::string& id, const std::string& image_dir,
                                           bool direct);
std::vector<std::string> PsCommand(const RunscTarget& target, const StatePaths& paths,
                                   const std::string& id);
// Ends when the container has ended, and prints its exit code.
std::vector<std::string> WaitCommand(const RunscTarget& target, const StatePaths& paths,
                                     const std::string& id);
// Stops and continues everything in the sandbox whose root container is `id`.
std::vector<std::string> PauseCommand(const RunscTarget& target, const StatePaths& paths,
                                      const std::string& id);
std::vector<std::string> ResumeCommand(const RunscTarget& target, const StatePaths& paths,
                                       const std::string& id);
// The containers with their states.
std::vector<std::string> ListCommand(const RunscTarget& target, const StatePaths& paths);
std::vector<std::string> KillCommand(const RunscTarget& target, const StatePaths& paths,
                                     const std::string& id, const std::string& signal);

struct Surroundings {
  std::string helper;  // absolute path of torpor-enter
  std::string netns_path;
  std::vector<std::string> cgroup_procs_files;
  bool hide_net_core = false;
  std::string log;  // where the helper says why it failed
};
// `command` run by the start helper in its surroundings.
std::vector<std::string> Enclosed(const Surroundings& surroundings,
                                  const std::vector<std::string>& command);

}  // namespace torpor::gvisor
