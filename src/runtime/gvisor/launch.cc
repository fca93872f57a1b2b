#include "runtime/gvisor/launch.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>

#include <fstream>
#include <sstream>

#include "model/reasons.h"
#include "os/process/process.h"
#include "runtime/gvisor/bundle.h"
#include "runtime/gvisor/errors.h"
#include "runtime/gvisor/guest_programs.h"
#include "runtime/gvisor/images.h"

namespace torpor::gvisor {
namespace {

using runtime::StartArgs;

constexpr int kLogLines = 20;

// No template has a container of this name (src/api/validate).
constexpr char kPauseName[] = "pause";
constexpr char kPauseConfig[] = R"({"ociVersion":"1.0.2",
  "process":{"user":{"uid":0,"gid":0},"args":["/pause"],"cwd":"/"},
  "root":{"path":"rootfs","readonly":true},"hostname":"pause",
  "linux":{"namespaces":[{"type":"pid"},{"type":"ipc"},{"type":"uts"},{"type":"mount"}]}})";

Status WriteFile(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << content;
  file.close();
  return file ? OkStatus() : ErrnoStatus(errno, "write " + path);
}

Status MakeDirectory(const std::string& path) {
  if (mkdir(path.c_str(), 0700) == 0 || errno == EEXIST) return OkStatus();
  return ErrnoStatus(errno, "mkdir " + path);
}

// Also puts its program where the configuration says.
StatusOr<std::string> PauseConfig(const std::string& bundle, int64_t cpu_milli,
                                  const Membership& member) {
  RETURN_IF_ERROR(MakeDirectory(bundle + "/rootfs"));
  const std::string program = bundle + "/rootfs/pause";
  RETURN_IF_ERROR(WriteFile(program, std::string(PauseGuest())));
  if (chmod(program.c_str(), 0700) != 0) return ErrnoStatus(errno, "chmod " + program);
  return ComposeConfig(kPauseConfig, bundle, cpu_milli, &member);
}

StatusOr<std::string> AppConfig(const Member& member, const StartArgs& args,
                                const Membership* membership) {
  const std::string bundle = args.bundles_dir + "/" + member.name;
  auto config = ReadFile(bundle + "/config.json");
  if (!config.ok()) {
    return Fail(reasons::kInvalidContainerConfig, std::string(config.status().message()));
  }
  return ComposeConfig(*config, bundle, args.spec.cpu_milli(), membership);
}

}  // namespace

StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoStatus(errno, "open " + path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

std::vector<Member> MembersOf(const StartArgs& args) {
  const StatePaths paths(args.state_dir);
  const std::string id = ContainerId(args.sandbox_id);
  if (args.spec.containers_size() == 1) return {{paths, id, args.spec.containers(0).name()}};
  std::vector<Member> members = {{paths, id, kPauseName, true}};
  for (const torpor::v1::ContainerSpec& container : args.spec.containers()) {
    const std::string& name = container.name();
    members.push_back({paths.OfApp(name), AppId(id, name), name});
  }
  return members;
}

Status PrepareState(const std::vector<Member>& members, const StartArgs& args) {
  const StatePaths& root = members.front().paths;
  for (const std::string& directory : {root.root, root.fs, root.log}) {
    RETURN_IF_ERROR(MakeDirectory(directory));
  }
  for (const Member& member : members) {
    RETURN_IF_ERROR(MakeDirectory(member.paths.bundle));
    const Membership membership{members.front().id, member.name, member.pause};
    ASSIGN_OR_RETURN(std::string composed,
                     member.pause
                         ? PauseConfig(member.paths.bundle, args.spec.cpu_milli(), membership)
                         : AppConfig(member, args, members.size() > 1 ? &membership : nullptr));
    RETURN_IF_ERROR(WriteFile(member.paths.bundle + "/config.json", composed));
  }
  return OkStatus();
}

StatusOr<ImageLoad> BeginLoad(const RunscTarget& target, PageCache* page_cache,
                              const StartArgs& args) {
  RETURN_IF_ERROR(CheckImage(args.restore_dir, args.files));
  ImageLoad load;
  ASSIGN_OR_RETURN(load.use,
                   page_cache->Load(args.restore_dir, args.preserve_restore, args.deadline));
  const std::string pages = args.restore_dir + "/" + kPagesFile;
  DirectInput direct;
  direct.flag = target.features.restore_flags.count("direct") != 0;
  direct.file_system = direct.flag && SupportsDirect(args.restore_dir, false);
  direct.cached = CachedFraction(pages);
  load.direct = UseDirect(direct);
  if (!load.direct) ReadAhead(pages);
  return load;
}

Status Launch(const std::vector<std::string>& command, const std::string& verb,
              const Member& member, const StartArgs& args, bool* may_have_run) {
  os::SpawnOptions options;
  options.clear_env = true;  // the sentry outlives us and needs nothing of ours
  options.env = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin"};
  auto stdio = args.stdio.find(member.name);
  if (stdio != args.stdio.end()) {
    options.stdout_fd = stdio->second.stdout_fd;
    options.stderr_fd = stdio->second.stderr_fd;
  }
  ASSIGN_OR_RETURN(os::Process process, os::Spawn(command, options));
  auto exit = process.Wait(args.deadline);
  if (!exit.ok()) {
    *may_have_run = true;
    RETURN_IF_ERROR(process.SignalGroup(SIGKILL));
    return Annotate(exit.status(), "runsc " + verb);
  }
  if (exit->ok()) return OkStatus();
  const StatePaths& paths = member.paths;
  return MapRunsc(verb, *exit,
                  LogTail(paths.LogOf("enter"), kLogLines) + LogTail(paths.LogOf(verb), kLogLines));
}

Surroundings SurroundingsOf(const StartArgs& args, const StatePaths& paths,
                            const std::string& helper, bool hide_net_core) {
  Surroundings surroundings;
  surroundings.helper = helper;
  surroundings.netns_path = args.netns_path;
  surroundings.cgroup_procs_files = args.cgroup_procs_files;
  surroundings.hide_net_core = hide_net_core;
  surroundings.log = paths.LogOf("enter");
  return surroundings;
}

StatusOr<std::unique_ptr<os::Reaper::Watched>> WatchSentry(os::Reaper* reaper,
                                                           const StatePaths& paths,
                                                           MonotonicTime started,
                                                           std::shared_ptr<ExitWatch> exit_watch) {
  ASSIGN_OR_RETURN(std::string pid_text, ReadFile(paths.pid_file));
  pid_t pid = std::atoi(pid_text.c_str());
  if (pid <= 0) return Fail(reasons::kRuntimeFailed, "runsc wrote no pid");
  return reaper->Watch(pid, started,
                       [exit_watch](os::ExitStatus status) { exit_watch->Exited(status); });
}

}  // namespace torpor::gvisor
