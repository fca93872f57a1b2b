// torpor up: all roles of one machine as supervised children.

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <climits>
#include <cstdio>

#include "apps/commands.h"
#include "apps/run_as.h"
#include "apps/store_settings.h"
#include "apps/up/layout.h"
#include "apps/up/local_client.h"
#include "apps/up/supervisor.h"
#include "base/log.h"
#include "base/options.h"
#include "objstore/uri.h"
#include "os/fs/dir_fd.h"

namespace torpor {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

struct UpOptions {
  std::string dir = "/var/lib/torpor";
  bool detach = false;
  std::string on_stop = "suspend";
  Duration stop_grace = seconds(60);
  Duration start_timeout = seconds(60);
  std::string worker_class = "gvisor";
  std::string config;  // passed on to the roles
  // Settings of the roles that are changed most; empty = the role's default. All others are keys of
  // the role's section in the --config file.
  std::string api_listen, http_listen, router_listen, router_admin_listen, image_layout_dir;
  std::string worker_memory, worker_cpu, worker_actors, runsc, platform;
  std::vector<std::string> actor_domains;
  std::string snapshots;
  objstore::RemoteOptions remote;
};

Options Declare(UpOptions* up) {
  Options o("up");
  o.String("dir", &up->dir, "data directory");
  o.Bool("detach", &up->detach, "return when Torpor is ready; it goes on in the background");
  o.Choice("on-stop", &up->on_stop, {"suspend", "kill"},
           "what a stop does to running actors: suspend saves their state first");
  o.DurationFlag("stop-grace", &up->stop_grace, seconds(1), std::chrono::hours(1),
                 "how long a stop may take to suspend actors");
  o.DurationFlag("start-timeout", &up->start_timeout, seconds(1), std::chrono::hours(1),
                 "how long the start may take");
  o.Choice("class", &up->worker_class, {"gvisor", "fake"}, "sandbox class of the worker");
  o.String("api-listen", &up->api_listen, "gRPC address of the apiserver");
  o.String("http-listen", &up->http_listen, "JSON address of the apiserver");
  o.String("router-listen", &up->router_listen, "address of the router");
  o.String("router-admin-listen", &up->router_admin_listen, "admin address of the router");
  o.Strings("actor-domain", &up->actor_domains, "host name suffixes of actors");
  o.String("snapshots", &up->snapshots,
           "s3:// or gs:// address where durable snapshots lie (default the data directory)");
  DeclareRemoteStores(&o, &up->remote);
  o.String("image-layout-dir", &up->image_layout_dir, "directory of OCI layouts");
  o.String("worker-memory", &up->worker_memory, "memory for actors");
  o.String("worker-cpu", &up->worker_cpu, "cpu for actors");
  o.String("worker-actors", &up->worker_actors, "number of running actors");
  o.String("runsc", &up->runsc, "path of runsc");
  o.String("platform", &up->platform, "gVisor platform");
  return o;
}

std::string SelfPath() {
  char path[PATH_MAX];
  ssize_t n = readlink("/proc/self/exe", path, sizeof path);
  return n > 0 ? std::string(path, static_cast<size_t>(n)) : "torpor";
}

// Our environment without what opens object storage: most roles have no business there, and one
// of them is beside sandboxes.
std::vector<std::string> EnvironmentWithoutStores() {
  std::vector<std::string> out;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    if (!IsStoreVariable(*entry)) out.emplace_back(*entry);
  }
  return out;
}

class RoleBuilder {
 public:
  RoleBuilder(const up::Layout& layout, const UpOptions& options, std::string name)
      : options_(options) {
    role_.name = std::move(name);
    role_.argv = {SelfPath(), role_.name};
    role_.log_path = layout.Log(role_.name);
    role_.environment = EnvironmentWithoutStores();
    if (!options.config.empty()) Flag("config-section", options.config);
  }
  RoleBuilder& As(const std::string& user) { return Flag("run-as", user); }
  RoleBuilder& Flag(const std::string& name, const std::string& value) {
    if (value.empty()) return *this;
    role_.argv.push_back("--" + name);
    role_.argv.push_back(value);
    return *this;
  }
  // It uses object storage.
  RoleBuilder& Stores() {
    role_.environment.reset();
    for (const auto& [name, value] : RemoteStoreFlags(options_.remote)) Flag(name, value);
    return *this;
  }
  RoleBuilder& Domains() {
    for (const std::string& domain : options_.actor_domains) Flag("actor-domain", domain);
    return *this;
  }
  RoleBuilder& Grace(Duration grace) {
    role_.stop_grace = grace;
    return *this;
  }
  RoleBuilder& SweepsAtStart() {
    role_.sweeps_at_start = true;
    return *this;
  }
  up::Role Build() { return std::move(role_); }

 private:
  const UpOptions& options_;
  up::Role role_;
};

// In the order of their start.
std::vector<up::Role> Roles(const up::Layout& d, const UpOptions& o) {
  const std::string images = o.image_layout_dir.empty() ? d.dir + "/images" : o.image_layout_dir;
  // What lies in the data directory stays readable when new snapshots go elsewhere.
  const std::string local = "file://" + d.Store();
  const std::string also = o.snapshots.empty() ? "" : local;
  std::vector<up::Role> roles;
  roles.push_back(RoleBuilder(d, o, "apiserver")
                      .As(kControlUser)
                      .Flag("dir", d.dir)
                      .Flag("api-socket", d.Run("api.sock"))
                      .Flag("registry-socket", d.Run("registry.sock"))
                      .Flag("token-file", d.Token())
                      .Flag("storage-location", o.snapshots.empty() ? local : o.snapshots)
                      .Flag("allowed-storage", also)
                      .Stores()
                      .Flag("trusted-uid", std::to_string(getuid()))
                      .Flag("api-listen", o.api_listen)
                      .Flag("http-listen", o.http_listen)
                      .Build());
  roles.push_back(RoleBuilder(d, o, "mover")
                      .As(kMoverUser)
                      .Flag("node-dir", d.Node())
                      .Flag("store-root", d.Store())
                      .Flag("allowed-storage", o.snapshots)
                      .Flag("allowed-storage", also)
                      .Stores()
                      .Flag("image-layout-dir", images)
                      .Build());
  roles.push_back(RoleBuilder(d, o, "node")
                      .Flag("node-dir", d.Node())
                      .Flag("registry-socket", d.Run("registry.sock"))
                      .Flag("agent-socket-user", kControlUser)
                      .Flag("image-layout-dir", images)
                      .Build());
  roles.push_back(RoleBuilder(d, o, "worker")
                      .Flag("node-dir", d.Node())
                      .Flag("worker-id", o.worker_class + "-0")
                      .Flag("class", o.worker_class)
                      .Flag("door-socket-user", kControlUser)
                      .Flag("worker-memory", o.worker_memory)
                      .Flag("worker-cpu", o.worker_cpu)
                      .Flag("worker-actors", o.worker_actors)
                      .Flag("runsc", o.runsc)
                      .Flag("platform", o.platform)
                      .Grace(seconds(40))
                      .SweepsAtStart()
                      .Build());
  roles.push_back(RoleBuilder(d, o, "router")
                      .As(kControlUser)
                      .Flag("api-socket", d.Run("api.sock"))
                      .Flag("registry-socket", d.Run("registry.sock"))
                      .Flag("router-listen", o.router_listen)
                      .Flag("router-admin-listen", o.router_admin_listen)
                      .Domains()
                      .Build());
  return roles;
}

int Fail(const Status& status) {
  fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return status.code() == Code::kInvalidArgument ? 2 : 1;
}

Status CheckSnapshots(const UpOptions& options) {
  if (options.snapshots.empty()) return OkStatus();
  auto uri = objstore::ParseUri(options.snapshots);
  if (!uri.ok()) return Annotate(uri.status(), "--snapshots");
  if (uri->scheme == "s3" || uri->scheme == "gs") return OkStatus();
  return Error(Code::kInvalidArgument, "FIELD_INVALID",
               "--snapshots must begin with s3:// or gs://; without it they lie in the data "
               "directory");
}

// Tries the storage as the mover will use it. A store that refuses ends the start; one that does
// not answer may do so later, and paused actors can wake without it.
Status CheckStorage(const std::vector<up::Role>& roles) {
  auto mover = std::find_if(roles.begin(), roles.end(),
                            [](const up::Role& role) { return role.name == "mover"; });
  std::vector<std::string> argv = mover->argv;
  argv[1] = "check-storage";
  os::CommandOptions options;
  options.deadline = Clock::Real()->Now() + seconds(60);
  ASSIGN_OR_RETURN(os::CommandResult result, os::RunCommand(argv, options));
  if (result.status.ok()) return OkStatus();
  std::string said = result.err.substr(std::min(result.err.find("error: "), result.err.size()));
  while (!said.empty() && said.back() == '\n') said.pop_back();
  if (result.status.code == 6) {
    fprintf(stderr, "warning: %s\n", said.c_str());
    return OkStatus();
  }
  const std::string prefix = "error: ";
  return Error(Code::kInvalidArgument, "STORE_DENIED",
               said.size() > prefix.size() ? said.substr(prefix.size())
                                           : "check-storage: " + result.status.ToString());
}

UniqueFd BlockSignals() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGHUP);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  return UniqueFd(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
}

bool Readable(int fd) {
  pollfd p{fd, POLLIN, 0};
  return poll(&p, 1, 0) > 0;
}

void SuspendActors(const up::Layout& layout, Duration grace) {
  up::LocalClient client(layout.Run("api.sock"));
  for (const auto& outcome : client.SuspendAll(Clock::Real()->Now() + grace)) {
    if (outcome.status.ok()) continue;
    fprintf(stderr, "warning: %s was not suspended: %s\n", outcome.actor.c_str(),
            std::string(outcome.status.message()).c_str());
  }
}

// Watches the roles until a signal. Prints one line when everything is ready.
Status Serve(up::Supervisor* supervisor, const up::Layout& layout, const UpOptions& options,
             int signal_fd, MonotonicTime begin) {
  up::LocalClient client(layout.Run("api.sock"));
  const WallTime since = Clock::Real()->WallNow();
  bool ready = false;
  while (!Readable(signal_fd)) {
    RETURN_IF_ERROR(
        supervisor->Watch(ready ? Duration(seconds(3600)) : Duration(milliseconds(20)), signal_fd));
    if (ready) continue;
    Status status = client.CheckReady(since);
    if (status.ok()) status = client.MakeAtespace("default");
    ready = status.ok();
    if (ready) {
      printf("torpor is ready after %s; data in %s, logs in %s/logs\n",
             FormatDuration(Clock::Real()->Now() - begin).c_str(), layout.dir.c_str(),
             layout.dir.c_str());
      fflush(stdout);
    } else if (Clock::Real()->Now() - begin > options.start_timeout) {
      return Error(
          Code::kDeadlineExceeded, "DEADLINE_EXCEEDED",
          fmt::format("not ready after {}: {}; see {}/logs", FormatDuration(options.start_timeout),
                      std::string(status.message()), layout.dir));
    }
  }
  if (options.on_stop == "suspend") SuspendActors(layout, options.stop_grace);
  return OkStatus();
}

// Starts this program again in a session of its own and waits for what it prints.
int Detach(const up::Layout& layout, const Args& args, Duration timeout) {
  // setsid(1) forks, since a spawned program leads a process group: what it started is known by its
  // output only.
  std::vector<std::string> argv{"setsid", SelfPath(), "up"};
  argv.insert(argv.end(), args.begin(), args.end());
  argv.push_back("--no-detach");
  UniqueFd log(open(layout.Log("up").c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0640));
  os::SpawnOptions options;
  options.stdout_fd = log.get();
  options.stderr_fd = log.get();
  auto child = os::Spawn(argv, options);
  if (!child.ok()) return Fail(child.status());
  auto launched = child->Wait(Clock::Real()->Now() + seconds(10));
  if (!launched.ok()) return Fail(launched.status());
  MonotonicTime deadline = Clock::Real()->Now() + timeout + seconds(10);
  while (Clock::Real()->Now() < deadline) {
    std::string text = up::TailOf(layout.Log("up"), 100);
    if (text.find("torpor is ready") != std::string::npos) {
      printf("%s\n", text.c_str());
      return 0;
    }
    if (size_t error = text.find("error: "); error != std::string::npos) {
      fprintf(stderr, "%s\n", text.c_str() + error);
      return 1;
    }
    std::this_thread::sleep_for(milliseconds(10));
  }
  return Fail(Error(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED", "not ready in time"));
}

}  // namespace

int UpCommand(const Args& args) {
  MonotonicTime begin = Clock::Real()->Now();
  UpOptions options;
  Options declared = Declare(&options);
  Status parsed = declared.Parse(args);
  if (!parsed.ok()) return Fail(parsed);
  if (declared.asked()) {
    printf("%s",
           declared
               .Answer("torpor up: all roles of this machine. Every other setting of a role is "
                       "a key of its section\n(apiserver, router, node, worker, mover) in the "
                       "file given by --config.")
               .c_str());
    return 0;
  }
  options.config = declared.config_file();
  while (options.dir.size() > 1 && options.dir.back() == '/') options.dir.pop_back();
  if (options.dir.empty() || options.dir[0] != '/') {
    return Fail(Error(Code::kInvalidArgument, "FIELD_INVALID", "--dir must be an absolute path"));
  }
  if (Status status = CheckSnapshots(options); !status.ok()) return Fail(status);
  if (geteuid() != 0) {
    return Fail(Error(Code::kPermissionDenied, "NOT_ALLOWED",
                      "torpor up needs root: sandboxes need namespaces and cgroups, and the roles "
                      "run as users of their own; try sudo torpor up"));
  }
  up::Layout layout{options.dir};
  Status made = MakeUsers();
  if (made.ok()) made = up::MakeLayout(layout);
  if (!made.ok()) return Fail(made);
  if (options.detach) return Detach(layout, args, options.start_timeout);

  auto dir = os::DirFd::OpenPath(layout.dir + "/run");
  if (!dir.ok()) return Fail(dir.status());
  auto lock = os::LockFile(*dir, "up.lock");
  if (!lock.ok()) {
    return Fail(Error(Code::kFailedPrecondition, "ALREADY_EXISTS",
                      fmt::format("torpor is already up in {}; see torpor status, or stop it with "
                                  "torpor down --dir {}",
                                  layout.dir, layout.dir)));
  }
  Status written = dir->WriteFile("up.pid", std::to_string(getpid()) + "\n", 0644);
  if (!written.ok()) return Fail(written);
  InitLog("up");
  UniqueFd signals = BlockSignals();
  auto supervisor = up::Supervisor::Create(layout.Run("roles.json"));
  if (!supervisor.ok()) return Fail(supervisor.status());
  (*supervisor)->EndLeftovers();
  std::vector<up::Role> roles = Roles(layout, options);
  Status status = options.snapshots.empty() ? OkStatus() : CheckStorage(roles);
  if (status.ok()) status = (*supervisor)->Start(std::move(roles));
  if (status.ok()) status = Serve(supervisor->get(), layout, options, signals.get(), begin);
  (*supervisor)->Stop();
  (void)dir->Unlink("up.pid");
  return status.ok() ? 0 : Fail(status);
}

int DownCommand(const Args& args) {
  const char* environment = getenv("TORPOR_DIR");
  std::string dir = environment != nullptr ? environment : "/var/lib/torpor";
  Duration timeout = std::chrono::minutes(3);
  Options declared("down");
  declared.String("dir", &dir, "data directory of the torpor up to stop");
  declared.DurationFlag("timeout", &timeout, seconds(1), std::chrono::hours(1), "how long to wait");
  Status parsed = declared.Parse(args);
  if (!parsed.ok()) return Fail(parsed);
  if (declared.asked()) {
    printf(
        "%s",
        declared.Answer("torpor down: stop torpor up; running actors are suspended first").c_str());
    return 0;
  }
  auto run = os::DirFd::OpenPath(dir + "/run");
  auto text = run.ok() ? run->ReadFile("up.pid", 32) : StatusOr<std::string>(run.status());
  // The lock, not the pid, says whether it runs: a pid is recycled.
  if (text.ok() && !os::LockFile(*run, "up.lock").ok()) {
    auto pidfd = os::OpenPidfd(atoi(text->c_str()));
    if (pidfd.ok()) {
      Status sent = os::SignalPidfd(pidfd->get(), SIGTERM);
      if (!sent.ok()) return Fail(sent);
      if (!os::WaitPidfd(pidfd->get(), Clock::Real()->Now() + timeout)) {
        return Fail(
            Error(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                  fmt::format("torpor up did not stop within {}", FormatDuration(timeout))));
      }
      printf("torpor is down\n");
      return 0;
    }
  }
  printf("torpor is not up in %s\n", dir.c_str());
  return 0;
}

}  // namespace torpor
