#include "runtime/gvisor/commands.h"

#include <cctype>

namespace torpor::gvisor {

StatePaths::StatePaths(std::string state_dir)
    : state(std::move(state_dir)),
      root(state + "/runsc"),
      bundle(state + "/bundle"),
      fs(state + "/fs"),
      log(state + "/log"),
      pid_file(state + "/pid") {}

StatePaths StatePaths::OfApp(const std::string& name) const {
  StatePaths app = *this;
  app.bundle += "-" + name;
  app.pid_file += "-" + name;
  app.log_suffix = "-" + name;
  return app;
}

std::string ContainerId(const std::string& sandbox_id) {
  std::string id;
  for (char c : sandbox_id) {
    if (std::isalnum(static_cast<unsigned char>(c))) id.push_back(c);
  }
  if (id.size() > 12) id.erase(0, id.size() - 12);
  return id.empty() ? "sandbox" : id;
}

std::string AppId(const std::string& root_id, const std::string& name) {
  return "_" + name + "." + root_id;
}

std::vector<std::string> GlobalArguments(const RunscTarget& target, const StatePaths& paths,
                                         const std::string& verb) {
  std::vector<std::string> arguments = {
      target.binary, "--root=" + paths.root, "--log=" + paths.LogOf(verb), "--log-format=json",
      "--platform=" + target.platform, "--network=sandbox",
      // Without it an open connection makes a checkpoint fail and
      // kills the guest.
      "--net-disconnect-ok", "--overlay2=root:dir=" + paths.fs, "--ignore-cgroups"};
  if (target.features.flags.count("cpu-num-from-quota") != 0) {
    arguments.push_back("--cpu-num-from-quota");
  }
  return arguments;
}

std::vector<std::string> BootCommand(const RunscTarget& target, const StatePaths& paths,
                                     const std::string& id) {
  auto arguments = GlobalArguments(target, paths, "run");
  arguments.insert(arguments.end(), {"run", "-bundle=" + paths.bundle, "-detach",
                                     "-pid-file=" + paths.pid_file, id});
  return arguments;
}

std::vector<std::string> CreateCommand(const RunscTarget& target, const StatePaths& paths,
                                       const std::string& id) {
  auto arguments = GlobalArguments(target, paths, "create");
  arguments.insert(arguments.end(),
                   {"create", "-bundle=" + paths.bundle, "-pid-file=" + paths.pid_file, id});
  return arguments;
}

std::vector<std::string> RestoreCommand(const RunscTarget& target, const StatePaths& paths,
                                        const std::string& id, const std::string& image_dir,
                                        bool direct) {
  auto arguments = GlobalArguments(target, paths, "restore");
  arguments.insert(arguments.end(),
                   {"restore", "-bundle=" + paths.bundle, "-image-path=" + image_dir, "-detach",
                    "-pid-file=" + paths.pid_file});
  if (direct) arguments.push_back("-direct");
  arguments.push_back(id);
  return arguments;
}

std::vector<std::string> CheckpointCommand(const RunscTarget& target, const StatePaths& paths,
                                           const std::string& id, const std::string& image_dir,
                                           bool direct) {
  auto arguments = GlobalArguments(target, paths, "checkpoint");
  // The mover compresses, faster and only what leaves the node.
  arguments.insert(arguments.end(),
                   {"checkpoint", "-image-path=" + image_dir, "-compression=none"});
  if (direct) arguments.push_back("-direct");
  arguments.push_back(id);
  return arguments;
}

std::vector<std::string> PsCommand(const RunscTarget& target, const StatePaths& paths,
                                   const std::string& id) {
  auto arguments = GlobalArguments(target, paths, "ps");
  arguments.insert(arguments.end(), {"ps", "-format=json", id});
  return arguments;
}

std::vector<std::string> WaitCommand(const RunscTarget& target, const StatePaths& paths,
                                     const std::string& id) {
  auto arguments = GlobalArguments(target, paths, "wait");
  arguments.insert(arguments.end(), {"wait", id});
  return arguments;
}

std::vector<std::string> PauseCommand(const RunscTarget& target, const StatePaths& paths,
                                      const std::string& id) {
  auto arguments = GlobalArguments(target, paths, "pause");
  arguments.insert(arguments.end(), {"pause", id});
  return arguments;
}

std::vector<std::string> ResumeCommand(const RunscTarget& target, const StatePaths& paths,
                                       const std::string& id) {
  auto arguments = GlobalArguments(target, paths, "resume");
  arguments.insert(arguments.end(), {"resume", id});
  return arguments;
}

std::vector<std::string> ListCommand(const RunscTarget& target, const StatePaths& paths) {
  auto arguments = GlobalArguments(target, paths, "list");
  arguments.insert(arguments.end(), {"list", "-format=json"});
  return arguments;
}

std::vector<std::string> KillCommand(const RunscTarget& target, const StatePaths& paths,
                                     const std::string& id, const std::string& signal) {
  auto arguments = GlobalArguments(target, paths, "kill");
  arguments.insert(arguments.end(), {"kill", id, signal});
  return arguments;
}

std::vector<std::string> Enclosed(const Surroundings& surroundings,
                                  const std::vector<std::string>& command) {
  std::vector<std::string> arguments = {surroundings.helper};
  if (!surroundings.log.empty()) {
    arguments.insert(arguments.end(), {"--log", surroundings.log});
  }
  for (const std::string& file : surroundings.cgroup_procs_files) {
    arguments.insert(arguments.end(), {"--procs", file});
  }
  if (!surroundings.netns_path.empty()) {
    arguments.insert(arguments.end(), {"--netns", surroundings.netns_path});
  }
  if (surroundings.hide_net_core) arguments.push_back("--hide-net-core");
  arguments.push_back("--");
  arguments.insert(arguments.end(), command.begin(), command.end());
  return arguments;
}

}  // namespace torpor::gvisor
