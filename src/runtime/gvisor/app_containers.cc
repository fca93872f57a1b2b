#include "runtime/gvisor/app_containers.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "model/reasons.h"
#include "runtime/gvisor/errors.h"

namespace torpor::gvisor {
namespace {

constexpr auto kCommandLimit = std::chrono::seconds(5);
constexpr int kLogLines = 20;

MonotonicTime In(Duration d) { return std::chrono::steady_clock::now() + d; }

}  // namespace

StatusOr<int> ParseWait(const std::string& output) {
  auto json = nlohmann::json::parse(output, nullptr, /*allow_exceptions=*/false);
  if (json.is_object()) {
    auto code = json.find("exitStatus");
    if (code != json.end() && code->is_number_integer()) return code->get<int>();
  }
  return Fail(reasons::kRuntimeFailed, "runsc wait: what it printed is not readable: " + output);
}

StatusOr<std::map<std::string, std::string>> ParseList(const std::string& output) {
  std::map<std::string, std::string> states;
  auto json = nlohmann::json::parse(output, nullptr, /*allow_exceptions=*/false);
  if (!json.is_array()) {
    return Fail(reasons::kRuntimeFailed, "runsc list: what it printed is not readable: " + output);
  }
  for (const auto& entry : json) {
    if (!entry.is_object()) continue;
    auto id = entry.find("id");
    auto state = entry.find("status");
    if (id == entry.end() || !id->is_string() || state == entry.end() || !state->is_string()) {
      continue;
    }
    states[id->get<std::string>()] = state->get<std::string>();
  }
  return states;
}

StatusOr<std::unique_ptr<AppContainers>> AppContainers::Watch(
    const RunscTarget& target, const StatePaths& paths, const std::string& root_id,
    const std::vector<std::string>& names,
    std::function<void(StatusOr<runtime::SandboxExit>)> on_end) {
  std::unique_ptr<AppContainers> apps(new AppContainers(target, paths));
  apps->stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!apps->stop_.valid()) return ErrnoStatus(errno, "eventfd");
  for (const std::string& name : names) {
    Container& container = apps->containers_.emplace_back();
    container.name = name;
    container.id = AppId(root_id, name);
    container.answer = UniqueFd(memfd_create("wait", MFD_CLOEXEC));
    if (!container.answer.valid()) return ErrnoStatus(errno, "memfd_create");
    os::SpawnOptions options;
    options.stdout_fd = container.answer.get();
    ASSIGN_OR_RETURN(container.wait,
                     os::Spawn(WaitCommand(target, paths.OfApp(name), container.id), options));
  }
  apps->thread_ =
      std::thread([apps = apps.get(), on_end = std::move(on_end)] { apps->Await(on_end); });
  return apps;
}

AppContainers::~AppContainers() {
  eventfd_write(stop_.get(), 1);
  if (thread_.joinable()) thread_.join();
  for (Container& container : containers_) {
    if (container.wait.pid() <= 0) continue;
    Status ended = container.wait.Signal(SIGKILL);
    if (ended.ok()) ended = container.wait.Wait(In(kCommandLimit)).status();
    if (!ended.ok()) {
      LogError("runsc wait does not end",
               {{"container", container.id}, {"error", std::string(ended.message())}});
    }
  }
}

void AppContainers::Await(const std::function<void(StatusOr<runtime::SandboxExit>)>& on_end) {
  std::vector<pollfd> polled;
  for (const Container& container : containers_) {
    polled.push_back({container.wait.pidfd(), POLLIN, 0});
  }
  polled.push_back({stop_.get(), POLLIN, 0});
  while (poll(polled.data(), polled.size(), -1) < 0) {
    if (errno == EINTR) continue;
    return on_end(ErrnoStatus(errno, "poll"));
  }
  auto ended =
      std::find_if(polled.begin(), polled.end(), [](const pollfd& p) { return p.revents; });
  const size_t index = static_cast<size_t>(ended - polled.begin());
  if (index == containers_.size()) return;
  Container& container = containers_[index];
  auto how = [&]() -> StatusOr<runtime::SandboxExit> {
    ASSIGN_OR_RETURN(os::ExitStatus status, container.wait.Wait(In(kCommandLimit)));
    if (!status.ok()) {
      return MapRunsc("wait", status,
                      LogTail(paths_.OfApp(container.name).LogOf("wait"), kLogLines));
    }
    char text[512];
    const ssize_t n = pread(container.answer.get(), text, sizeof text, 0);
    ASSIGN_OR_RETURN(int code,
                     ParseWait(std::string(text, static_cast<size_t>(std::max<ssize_t>(n, 0)))));
    return runtime::SandboxExit{.exit_code = code, .signal = 0, .container = container.name};
  };
  on_end(how());
}

Status AppContainers::CheckAlive(MonotonicTime deadline) const {
  ASSIGN_OR_RETURN(os::CommandResult listed,
                   os::RunCommand(ListCommand(target_, paths_), {.deadline = deadline}));
  if (!listed.status.ok()) {
    return MapRunsc("list", listed.status, LogTail(paths_.LogOf("list"), kLogLines));
  }
  ASSIGN_OR_RETURN(auto states, ParseList(listed.out));
  for (const Container& container : containers_) {
    if (states[container.id] != "running") {
      return Fail(reasons::kWorkloadExited,
                  "container " + container.name + " ended before the capture");
    }
  }
  return OkStatus();
}

void AppContainers::Terminate(MonotonicTime deadline) {
  for (const Container& container : containers_) {
    const StatePaths paths = paths_.OfApp(container.name);
    // One that has ended refuses it.
    auto sent = os::RunCommand(KillCommand(target_, paths, container.id, "TERM"),
                               {.deadline = std::min(deadline, In(kCommandLimit))});
    if (!sent.ok()) {
      LogWarning("no SIGTERM for a container",
                 {{"container", container.id}, {"error", std::string(sent.status().message())}});
    }
  }
  for (const Container& container : containers_) os::WaitPidfd(container.wait.pidfd(), deadline);
}

}  // namespace torpor::gvisor
