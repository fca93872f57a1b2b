#include "bench/bare.h"

#include <errno.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "bench/glutton.h"
#include "bench/grpc_control.h"
#include "bench/user.h"
#include "os/fs/remove.h"
#include "os/netns/netns.h"
#include "os/process/process.h"
#include "runtime/gvisor/bundle.h"
#include "runtime/gvisor/images.h"
#include "runtime/gvisor/leftovers.h"
#include "runtime/gvisor/probe.h"
#include "runtime/gvisor/sandbox.h"
#include "worker/probe/http_probe.h"

namespace torpor::bench {
namespace {

namespace fs = std::filesystem;
using std::chrono::seconds;

constexpr auto kCommandLimit = seconds(60);
constexpr auto kCallLimit = seconds(60);
constexpr char kBareFolder[] = "bare";
constexpr char kPrefix[] = "bench-";

// Names carry the pid, so that leftovers can be told from what another process uses.
std::string OwnPrefix() { return kPrefix + std::to_string(getpid()); }

// Of the process in a name that begins with `prefix`.
bool OwnerLives(const std::string& name, const std::string& prefix) {
  return access(("/proc/" + std::to_string(std::atoi(name.c_str() + prefix.size()))).c_str(),
                F_OK) == 0;
}

MonotonicTime In(Duration d) { return Clock::Real()->Now() + d; }
double MsSince(MonotonicTime begin) { return ToMs(Clock::Real()->Now() - begin); }

StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return ErrnoStatus(errno, "open " + path);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

Status MakeDirectory(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return error ? ErrnoStatus(error.value(), "mkdir " + path) : OkStatus();
}

StatusOr<std::string> FindInPath(const std::string& name) {
  const char* path = getenv("PATH");
  std::istringstream folders(path == nullptr ? "/usr/bin:/bin" : path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    std::string candidate = folder + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
  }
  return Error(Code::kNotFound, "FIELD_INVALID", "no " + name + " in PATH; name it with --runsc");
}

}  // namespace

StatusOr<BareRuntime> FindBareRuntime(const std::string& runsc, const std::string& platform) {
  BareRuntime runtime;
  runtime.target.binary = runsc;
  if (runsc.empty()) {
    ASSIGN_OR_RETURN(runtime.target.binary, FindInPath("runsc"));
  }
  ASSIGN_OR_RETURN(runtime.target.features,
                   gvisor::ProbeRunsc(runtime.target.binary, In(seconds(20))));
  runtime.target.platform = platform;
  if (platform.empty()) {
    const bool systrap = runtime.target.features.platforms.count("systrap") != 0;
    runtime.target.platform = systrap ? "systrap" : "ptrace";
  }
  std::error_code error;
  runtime.helper = fs::read_symlink("/proc/self/exe", error).parent_path() / "torpor-enter";
  if (access(runtime.helper.c_str(), X_OK) != 0) return ErrnoStatus(errno, runtime.helper);
  ASSIGN_OR_RETURN(auto netns, gvisor::ScratchNetns::Create());
  runtime.hide_net_core = netns->LooksLikeHost();
  return runtime;
}

// One sandbox at a time, in a state directory and a network namespace of its own.
struct BareRuns::Sandbox {
  explicit Sandbox(std::string state_dir) : paths(std::move(state_dir)) {}
  ~Sandbox() {
    Status removed = gvisor::RemoveSandbox(paths, id, {});
    std::error_code error;
    fs::remove_all(paths.state, error);
    if (!removed.ok()) {
      fprintf(stderr, "warning: sandbox %s: %s\n", id.c_str(),
              std::string(removed.message()).c_str());
    }
  }

  gvisor::StatePaths paths;
  std::string id;
  std::shared_ptr<worker::ActorNetwork> network;
  std::unique_ptr<os::Reaper::Watched> sentry;
  std::unique_ptr<HttpConnection> connection;
  std::unique_ptr<Glutton> glutton;
};

BareRuns::BareRuns(const BareRuntime& runtime, std::string work_dir, os::Reaper* reaper,
                   std::unique_ptr<worker::Gateway> gateway)
    : runtime_(runtime),
      work_dir_(std::move(work_dir)),
      reaper_(reaper),
      gateway_(std::move(gateway)) {}

StatusOr<std::unique_ptr<BareRuns>> BareRuns::Create(const BareRuntime& runtime,
                                                     const std::string& work_dir,
                                                     os::Reaper* reaper) {
  RETURN_IF_ERROR(MakeDirectory(work_dir + "/" + kBareFolder));
  ASSIGN_OR_RETURN(auto gateway, worker::Gateway::Start(OwnPrefix()));
  return std::unique_ptr<BareRuns>(
      new BareRuns(runtime, work_dir + "/" + kBareFolder, reaper, std::move(gateway)));
}

BareRuns::~BareRuns() {
  std::error_code error;
  fs::remove_all(work_dir_, error);
}

StatusOr<std::unique_ptr<BareRuns::Sandbox>> BareRuns::Prepare(const std::string& config) {
  const std::string name = fmt::format("{}-{}", OwnPrefix(), next_++);
  auto sandbox = std::make_unique<Sandbox>(work_dir_ + "/" + name);
  sandbox->id = name;
  for (const std::string& directory :
       {sandbox->paths.root, sandbox->paths.bundle, sandbox->paths.fs, sandbox->paths.log}) {
    RETURN_IF_ERROR(MakeDirectory(directory));
  }
  std::ofstream(sandbox->paths.bundle + "/config.json") << config;
  ASSIGN_OR_RETURN(sandbox->network, gateway_->Create(name));
  RETURN_IF_ERROR(sandbox->network->Prepare());
  sandbox->connection = std::make_unique<HttpConnection>(
      [network = sandbox->network](MonotonicTime) { return network->Dial(kActorPort); });
  return sandbox;
}

Status BareRuns::Launch(Sandbox* sandbox, const std::vector<std::string>& command) {
  gvisor::Surroundings surroundings;
  surroundings.helper = runtime_.helper;
  surroundings.netns_path = sandbox->network->netns_path();
  surroundings.hide_net_core = runtime_.hide_net_core;
  surroundings.log = sandbox->paths.LogOf("enter");
  const MonotonicTime begin = Clock::Real()->Now();
  ASSIGN_OR_RETURN(os::Process process, os::Spawn(gvisor::Enclosed(surroundings, command)));
  ASSIGN_OR_RETURN(os::ExitStatus exit, process.Wait(In(kCommandLimit)));
  if (!exit.ok()) {
    auto why = ReadFile(surroundings.log);
    return Status(Code::kInternal,
                  fmt::format("bare runsc: {} {}", exit.ToString(), why.ok() ? *why : ""));
  }
  ASSIGN_OR_RETURN(std::string pid, ReadFile(sandbox->paths.pid_file));
  ASSIGN_OR_RETURN(sandbox->sentry,
                   reaper_->Watch(std::atoi(pid.c_str()), begin, [](os::ExitStatus) {}));
  return OkStatus();
}

Status BareRuns::Work(Sandbox* sandbox, const Scenario& scenario, bool fill) {
  Status first;
  auto note = [&](const std::string& row, const Outcome& outcome) {
    if (first.ok() && !outcome.ok()) first = Annotate(outcome.status, "bare " + row);
  };
  if (fill && scenario.mem_target > 0) {
    note("GluttonFillRAM", sandbox->glutton->Fill(scenario.mem_target, scenario.content));
  }
  if (first.ok()) WorkOnMemory(*sandbox->glutton, scenario, note);
  if (first.ok()) note("GluttonPing", sandbox->glutton->Ping("bare"));
  // An open connection would be one more thing for the checkpoint to end.
  sandbox->connection->Close();
  return first;
}

Status BareRuns::Checkpoint(Sandbox* sandbox, const std::string& image, BareSamples* samples) {
  RETURN_IF_ERROR(MakeDirectory(image));
  gvisor::DirectInput direct;
  direct.flag = runtime_.target.features.checkpoint_flags.count("direct") != 0;
  direct.file_system = direct.flag && gvisor::SupportsDirect(image, true);
  const auto command = gvisor::CheckpointCommand(runtime_.target, sandbox->paths, sandbox->id,
                                                 image, gvisor::UseDirect(direct));
  const MonotonicTime begin = Clock::Real()->Now();
  ASSIGN_OR_RETURN(os::Process process, os::Spawn(command));
  ASSIGN_OR_RETURN(os::ExitStatus exit, process.Wait(In(kCommandLimit)));
  samples->checkpoint.push_back(MsSince(begin));
  if (!exit.ok()) return Status(Code::kInternal, "bare runsc checkpoint: " + exit.ToString());
  RETURN_IF_ERROR(sandbox->sentry->Wait(In(kCommandLimit)).status());
  samples->gone.push_back(MsSince(begin));
  return OkStatus();
}

Status BareRuns::Restore(Sandbox* sandbox, const std::string& image, BareSamples* samples) {
  const MonotonicTime begin = Clock::Real()->Now();
  gvisor::DirectInput direct;
  direct.flag = runtime_.target.features.restore_flags.count("direct") != 0;
  direct.file_system = direct.flag && gvisor::SupportsDirect(image, false);
  direct.cached = gvisor::CachedFraction(image + "/" + gvisor::kPagesFile);
  samples->cached = direct.cached;
  RETURN_IF_ERROR(
      Launch(sandbox, gvisor::RestoreCommand(runtime_.target, sandbox->paths, sandbox->id, image,
                                             gvisor::UseDirect(direct))));
  samples->restore_run.push_back(MsSince(begin));
  worker::ProbeReport report;
  RETURN_IF_ERROR(worker::WaitUntilReady(
      {kProbePath, kActorPort},
      [network = sandbox->network](int port) { return network->Dial(port); }, In(kCallLimit), {},
      Clock::Real(), &report));
  samples->restore.push_back(MsSince(begin));
  return OkStatus();
}

Status BareRuns::Cycle(std::unique_ptr<Sandbox>* sandbox, const std::string& config,
                       const Scenario& scenario, BareSamples* samples) {
  const std::string image = fmt::format("{}/image-{}", work_dir_, next_);
  RETURN_IF_ERROR(Checkpoint(sandbox->get(), image, samples));
  auto glutton = std::move((*sandbox)->glutton);  // knows what the memory must be
  sandbox->reset();
  ASSIGN_OR_RETURN(*sandbox, Prepare(config));
  std::this_thread::sleep_for(scenario.min_wait);
  RETURN_IF_ERROR(Restore(sandbox->get(), image, samples));
  std::error_code error;
  fs::remove_all(image, error);
  (*sandbox)->glutton = std::move(glutton);
  return Work(sandbox->get(), scenario, false);
}

Status BareRuns::Block(const std::string& config, const Scenario& scenario, int cycles,
                       const std::function<bool()>& stopped, BareSamples* samples) {
  ASSIGN_OR_RETURN(std::unique_ptr<Sandbox> sandbox, Prepare(config));
  RETURN_IF_ERROR(
      Launch(sandbox.get(), gvisor::BootCommand(runtime_.target, sandbox->paths, sandbox->id)));
  worker::ProbeReport report;
  RETURN_IF_ERROR(worker::WaitUntilReady(
      {kProbePath, kActorPort},
      [network = sandbox->network](int port) { return network->Dial(port); }, In(kCallLimit), {},
      Clock::Real(), &report));
  // The one Glutton outlives the sandboxes; it posts to the present one.
  sandbox->glutton = std::make_unique<Glutton>(
      [&sandbox](const std::string& path, const std::string& body) {
        return sandbox->connection->Exchange({"POST", path, "bare", "application/x-protobuf", body},
                                             In(kCallLimit));
      },
      VerifyOf(scenario));
  RETURN_IF_ERROR(Work(sandbox.get(), scenario, true));
  BareSamples discarded;
  for (int i = 0; i <= cycles && !stopped(); ++i) {
    RETURN_IF_ERROR(Cycle(&sandbox, config, scenario, i == 0 ? &discarded : samples));
  }
  return OkStatus();
}

StatusOr<std::string> BundleOfActor(const std::string& node_dir, const std::string& uid,
                                    const std::string& container) {
  const std::string bundle = node_dir + "/actors/" + uid + "/bundles/" + container;
  ASSIGN_OR_RETURN(std::string config, ReadFile(bundle + "/config.json"));
  constexpr int64_t kOneCpu = 1000;  // as the template of the scenarios
  return gvisor::ComposeConfig(config, bundle, kOneCpu);
}

Status RemoveBareLeftovers() {
  for (const std::string& prefix :
       {worker::ActorNetnsName(kPrefix), worker::GatewayNetnsName(kPrefix)}) {
    ASSIGN_OR_RETURN(std::vector<std::string> names, os::ListNetNamespaces(prefix));
    for (const std::string& name : names) {
      if (!OwnerLives(name, prefix)) RETURN_IF_ERROR(os::DeleteNetNamespace(name));
    }
  }
  return OkStatus();
}

Status RemoveBareSandboxes(const std::string& dir) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(dir + "/" + kBareFolder, error)) {
    const gvisor::StatePaths paths(entry.path());
    RETURN_IF_ERROR(gvisor::RemoveSandbox(paths, entry.path().filename().string(), {}));
  }
  return OkStatus();
}

}  // namespace torpor::bench
