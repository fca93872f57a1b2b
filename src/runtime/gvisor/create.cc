#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/log.h"
#include "model/reasons.h"
#include "runtime/gvisor/control_socket/calls.h"
#include "runtime/gvisor/gvisor_runtime.h"
#include "runtime/gvisor/smoke.h"

namespace torpor::gvisor {
namespace {

constexpr auto kProbeLimit = std::chrono::seconds(10);
constexpr auto kSmokeLimit = std::chrono::seconds(20);

Status Unusable(const std::string& what) {
  return Error(Code::kFailedPrecondition, reasons::kRuntimeFailed.name, what);
}

// The start helper executes an absolute path; PATH is searched here, once.
StatusOr<std::string> FindProgram(const std::string& name) {
  if (name.find('/') != std::string::npos) {
    if (access(name.c_str(), X_OK) != 0) return ErrnoStatus(errno, name);
    std::error_code error;
    auto absolute = std::filesystem::absolute(name, error);
    return error ? StatusOr<std::string>(ErrnoStatus(error.value(), name)) : absolute.string();
  }
  const char* path = getenv("PATH");
  std::string rest = path == nullptr ? "/usr/sbin:/usr/bin:/sbin:/bin" : path;
  while (!rest.empty()) {
    size_t end = rest.find(':');
    std::string candidate = rest.substr(0, end) + "/" + name;
    if (access(candidate.c_str(), X_OK) == 0) return candidate;
    rest = end == std::string::npos ? "" : rest.substr(end + 1);
  }
  return Error(
      Code::kNotFound, reasons::kInternal.name,
      fmt::format("no {} in PATH; install it (on Debian 12 from bookworm-backports) or name "
                  "it with --runsc",
                  name));
}

StatusOr<std::string> FindHelper(const std::string& configured) {
  if (!configured.empty()) return FindProgram(configured);
  std::error_code error;
  auto self = std::filesystem::read_symlink("/proc/self/exe", error);
  if (error) return ErrnoStatus(error.value(), "/proc/self/exe");
  return FindProgram((self.parent_path() / "torpor-enter").string());
}

// The same with the control socket, if its calls are known and pass the same test.
std::unique_ptr<runtime::Runtime> WithSocket(GvisorRuntime::Settings settings,
                                             std::unique_ptr<runtime::Runtime> without,
                                             const std::string& netns_path,
                                             const runtime::RuntimeConfig& config) {
  settings.target.control = ControlCallsOf(settings.target.features.version);
  if (settings.target.control == nullptr) return without;
  auto runtime = std::make_unique<GvisorRuntime>(settings, config.reaper);
  Status works = SmokeTest(*runtime, netns_path, config.work_dir,
                           std::chrono::steady_clock::now() + kSmokeLimit);
  if (works.ok()) return runtime;
  LogWarning("runsc is used by command only: its control socket does not work as expected",
             {{"error", std::string(works.message())}});
  return without;
}

}  // namespace

StatusOr<std::unique_ptr<runtime::Runtime>> GvisorRuntime::Create(
    const runtime::RuntimeConfig& config) {
  CHECK(config.reaper != nullptr);
  Settings settings;
  ASSIGN_OR_RETURN(settings.target.binary,
                   FindProgram(config.binary.empty() ? "runsc" : config.binary));
  ASSIGN_OR_RETURN(settings.helper, FindHelper(config.helper));
  ASSIGN_OR_RETURN(
      settings.target.features,
      ProbeRunsc(settings.target.binary, std::chrono::steady_clock::now() + kProbeLimit));
  if (config.metrics != nullptr) {
    settings.target.captures = config.metrics->Counter(
        "torpor_worker_memory_captures_total",
        "Captures of memory begun, by whether the page cache of the image was kept out of the "
        "actor's cgroup.",
        {"isolated"});
  }
  if (auto missing = settings.target.features.Missing(); !missing.empty()) {
    return Unusable(fmt::format("{} {} is too old: it lacks {}", settings.target.binary,
                                settings.target.features.version, fmt::join(missing, ", ")));
  }
  RETURN_IF_ERROR(
      RemoveSmokeLeftovers(config.work_dir, std::chrono::steady_clock::now() + kProbeLimit));
  ASSIGN_OR_RETURN(auto netns, ScratchNetns::Create());
  settings.hide_net_core = netns->LooksLikeHost();

  std::vector<std::string> platforms = {config.platform};
  if (config.platform == "auto") platforms = {"systrap", "ptrace"};
  Status last = Unusable("no platform");
  for (const std::string& platform : platforms) {
    if (settings.target.features.platforms.count(platform) == 0) {
      last = Unusable(fmt::format("{} has no platform {}", settings.target.binary, platform));
      continue;
    }
    settings.target.platform = platform;
    auto runtime = std::make_unique<GvisorRuntime>(settings, config.reaper);
    last = SmokeTest(*runtime, netns->path(), config.work_dir,
                     std::chrono::steady_clock::now() + kSmokeLimit);
    if (last.ok() && !config.control_socket) return runtime;
    if (last.ok()) return WithSocket(settings, std::move(runtime), netns->path(), config);
    LogWarning("runsc does not work on this platform",
               {{"platform", platform}, {"error", std::string(last.message())}});
  }
  return last;
}

}  // namespace torpor::gvisor
