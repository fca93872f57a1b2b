#include "apps/up/supervisor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "os/fs/dir_fd.h"

namespace torpor::up {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A log file grows by this much before it is moved aside at the role's next start.
constexpr off_t kLogBytesMax = 32 << 20;

StatusOr<UniqueFd> OpenLog(const std::string& path) {
  struct stat st;
  if (stat(path.c_str(), &st) == 0 && st.st_size > kLogBytesMax) {
    rename(path.c_str(), (path + ".1").c_str());
  }
  UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  if (!fd.valid()) return ErrnoStatus(errno, "open log " + path);
  return fd;
}

}  // namespace

std::string SerializeStates(const std::vector<RoleState>& states) {
  nlohmann::json roles = nlohmann::json::array();
  for (const RoleState& s : states) {
    roles.push_back({{"name", s.name},
                     {"pid", s.pid},
                     {"start_ticks", s.start_ticks},
                     {"restarts", s.restarts},
                     {"last_exit", s.last_exit}});
  }
  return nlohmann::json{{"roles", roles}}.dump(1) + "\n";
}

StatusOr<std::vector<RoleState>> ParseStates(const std::string& text) {
  auto json = nlohmann::json::parse(text, nullptr, false);
  Status bad = Error(Code::kInvalidArgument, "FIELD_INVALID", "not a state file of torpor up");
  if (!json.is_object() || !json.contains("roles") || !json["roles"].is_array()) return bad;
  std::vector<RoleState> out;
  for (const auto& role : json["roles"]) {
    if (!role.is_object() || !role.contains("name") || !role["name"].is_string() ||
        !role.contains("pid") || !role["pid"].is_number_integer() ||
        !role.contains("start_ticks") || !role["start_ticks"].is_number_integer()) {
      return bad;
    }
    RoleState state;
    state.name = role["name"];
    state.pid = role["pid"];
    state.start_ticks = role["start_ticks"];
    if (role.contains("restarts") && role["restarts"].is_number_integer()) {
      state.restarts = role["restarts"];
    }
    if (role.contains("last_exit") && role["last_exit"].is_string()) {
      state.last_exit = role["last_exit"];
    }
    out.push_back(std::move(state));
  }
  return out;
}

int64_t StartTicks(pid_t pid) {
  std::ifstream in("/proc/" + std::to_string(pid) + "/stat");
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  // The command name may hold spaces and parentheses: fields are counted after the last ')'.
  size_t end = text.rfind(')');
  if (end == std::string::npos) return 0;
  std::istringstream fields(text.substr(end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  int64_t ticks = 0;
  fields >> ticks;
  return ticks;
}

Duration RestartPause(int quick_restarts) {
  if (quick_restarts <= 1) return Duration(0);
  return std::min<Duration>(milliseconds(100) * (1 << std::min(quick_restarts - 2, 10)),
                            seconds(5));
}

std::string TailOf(const std::string& path, int lines) {
  std::ifstream in(path);
  std::deque<std::string> tail;
  for (std::string line; std::getline(in, line);) {
    tail.push_back(line);
    if (static_cast<int>(tail.size()) > lines) tail.pop_front();
  }
  std::string out;
  for (const std::string& line : tail) out += (out.empty() ? "" : "\n") + line;
  return out;
}

Supervisor::Supervisor(std::string state_path, std::unique_ptr<os::Reaper> reaper)
    : state_path_(std::move(state_path)), reaper_(std::move(reaper)) {}

StatusOr<std::unique_ptr<Supervisor>> Supervisor::Create(std::string state_path) {
  ASSIGN_OR_RETURN(auto reaper, os::Reaper::Start());
  return std::unique_ptr<Supervisor>(new Supervisor(std::move(state_path), std::move(reaper)));
}

void Supervisor::EndLeftovers() {
  std::ifstream in(state_path_);
  std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  auto states = ParseStates(text);
  if (!states.ok()) return;
  for (auto it = states->rbegin(); it != states->rend(); ++it) {
    if (it->pid <= 0) continue;
    auto pidfd = os::OpenPidfd(it->pid);
    if (!pidfd.ok() || StartTicks(it->pid) != it->start_ticks) continue;
    LogWarning("ending a role that an earlier supervisor left", {{"role_name", it->name}});
    (void)os::SignalPidfd(pidfd->get(), SIGTERM);
    if (!os::WaitPidfd(pidfd->get(), Clock::Real()->Now() + seconds(10))) {
      (void)os::SignalPidfd(pidfd->get(), SIGKILL);
      os::WaitPidfd(pidfd->get(), Clock::Real()->Now() + seconds(5));
    }
  }
}

Status Supervisor::Start(std::vector<Role> roles) {
  for (Role& role : roles) {
    Child child;
    child.role = std::move(role);
    RETURN_IF_ERROR(StartChild(child));
    children_.push_back(std::move(child));
  }
  WriteState();
  return OkStatus();
}

Status Supervisor::StartChild(Child& child) {
  ASSIGN_OR_RETURN(UniqueFd log, OpenLog(child.role.log_path));
  os::SpawnOptions options;
  options.stdout_fd = log.get();
  options.stderr_fd = log.get();
  if (child.role.sweeps_at_start) options.blocked_signals = {SIGTERM};
  if (child.role.environment.has_value()) {
    options.clear_env = true;
    options.env = *child.role.environment;
  }
  ASSIGN_OR_RETURN(child.process, os::Spawn(child.role.argv, options));
  child.running = true;
  child.started = Clock::Real()->Now();
  child.start_ticks = StartTicks(child.process.pid());
  return OkStatus();
}

Status Supervisor::Ended(Child& child, os::ExitStatus status) {
  child.running = false;
  child.last_exit = status.ToString();
  MonotonicTime now = Clock::Real()->Now();
  // Only the first start shows wrong flags. Later on one role that cannot start ends no other.
  if (status.code == 2 && child.restarts == 0) {
    return Error(
        Code::kFailedPrecondition, "FIELD_INVALID",
        fmt::format("role {} cannot start:\n{}", child.role.name, TailOf(child.role.log_path, 5)));
  }
  if (now - child.started > seconds(10)) child.quick_restarts = 0;
  PlanRestart(child);
  LogWarning("a role ended and will be started again",
             {{"role_name", child.role.name}, {"exit", child.last_exit}});
  return OkStatus();
}

void Supervisor::PlanRestart(Child& child) {
  ++child.quick_restarts;
  ++child.restarts;
  child.next_start = Clock::Real()->Now() + RestartPause(child.quick_restarts);
}

void Supervisor::Restart(Child& child) {
  Status started = StartChild(child);
  if (started.ok()) return;
  child.last_exit = std::string(started.message());
  PlanRestart(child);
  LogWarning("a role cannot be started now and will be tried again",
             {{"role_name", child.role.name}, {"error", child.last_exit}});
}

Status Supervisor::Watch(Duration wait, int wake_fd) {
  std::vector<pollfd> fds{{wake_fd, POLLIN, 0}};
  MonotonicTime now = Clock::Real()->Now();
  MonotonicTime until = now + wait;
  for (Child& child : children_) {
    if (child.running) {
      fds.push_back({child.process.pidfd(), POLLIN, 0});
    } else {
      until = std::min(until, child.next_start);
    }
  }
  int timeout =
      static_cast<int>(std::max<int64_t>(0, std::chrono::ceil<milliseconds>(until - now).count()));
  poll(fds.data(), fds.size(), timeout);
  bool changed = false;
  for (Child& child : children_) {
    if (child.running) {
      auto status = child.process.Wait(Clock::Real()->Now());
      if (!status.ok()) continue;
      changed = true;
      RETURN_IF_ERROR(Ended(child, *status));
    }
    if (!child.running && Clock::Real()->Now() >= child.next_start) {
      changed = true;
      Restart(child);
    }
  }
  if (changed) WriteState();
  return OkStatus();
}

void Supervisor::Stop() {
  for (auto child = children_.rbegin(); child != children_.rend(); ++child) {
    if (!child->running && child->role.sweeps_at_start) Restart(*child);
    if (!child->running) continue;
    (void)child->process.Signal(SIGTERM);
    auto status = child->process.Wait(Clock::Real()->Now() + child->role.stop_grace);
    if (!status.ok()) {
      LogWarning("a role did not end in time and is killed", {{"role_name", child->role.name}});
      (void)child->process.SignalGroup(SIGKILL);
      status = child->process.Wait(Clock::Real()->Now() + seconds(5));
    }
    child->running = false;
    child->last_exit = status.ok() ? status->ToString() : "unknown";
  }
  WriteState();
}

std::vector<RoleState> Supervisor::states() const {
  std::vector<RoleState> out;
  for (const Child& child : children_) {
    out.push_back({child.role.name, child.running ? child.process.pid() : 0, child.start_ticks,
                   child.restarts, child.last_exit});
  }
  return out;
}

void Supervisor::WriteState() {
  size_t slash = state_path_.rfind('/');
  auto dir = os::DirFd::OpenPath(state_path_.substr(0, slash));
  Status status =
      dir.ok() ? dir->WriteFile(state_path_.substr(slash + 1), SerializeStates(states()), 0644)
               : dir.status();
  if (!status.ok()) LogWarning("cannot write the state file", {{"error", status.ToString()}});
}

}  // namespace torpor::up
