#include "os/process/process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include <fmt/format.h>

#include "os/process/children.h"

extern char** environ;

namespace torpor::os {
namespace {

// glibc of Debian 12 has no wrapper constant for it everywhere.
constexpr idtype_t kIdPidfd = static_cast<idtype_t>(3);

std::vector<std::string> Environment(const SpawnOptions& options) {
  std::vector<std::string> out;
  if (!options.clear_env) {
    for (char** e = environ; e != nullptr && *e != nullptr; ++e) out.emplace_back(*e);
  }
  for (const std::string& entry : options.env) {
    std::string name = entry.substr(0, entry.find('=') + 1);
    out.erase(
        std::remove_if(out.begin(), out.end(),
                       [&](const std::string& o) { return o.compare(0, name.size(), name) == 0; }),
        out.end());
    out.push_back(entry);
  }
  return out;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> out;
  out.reserve(strings.size() + 1);
  for (std::string& s : strings) out.push_back(s.data());
  out.push_back(nullptr);
  return out;
}

// posix_spawn's attributes and file actions, freed at the end of the scope.
class SpawnSetup {
 public:
  SpawnSetup() {
    posix_spawnattr_init(&attributes_);
    posix_spawn_file_actions_init(&actions_);
    sigset_t all;
    sigfillset(&all);
    posix_spawnattr_setsigdefault(&attributes_, &all);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(
        &attributes_, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETPGROUP);
  }
  ~SpawnSetup() {
    posix_spawn_file_actions_destroy(&actions_);
    posix_spawnattr_destroy(&attributes_);
  }
  SpawnSetup(const SpawnSetup&) = delete;
  SpawnSetup& operator=(const SpawnSetup&) = delete;

  Status Add(const SpawnOptions& options) {
    sigset_t blocked;
    sigemptyset(&blocked);
    for (int signal : options.blocked_signals) sigaddset(&blocked, signal);
    posix_spawnattr_setsigmask(&attributes_, &blocked);
    RETURN_IF_ERROR(AddFd(options.stdin_fd, 0, O_RDONLY));
    RETURN_IF_ERROR(AddFd(options.stdout_fd, 1, O_WRONLY));
    RETURN_IF_ERROR(AddFd(options.stderr_fd, 2, O_WRONLY));
    posix_spawn_file_actions_addclosefrom_np(&actions_, 3);
    if (!options.cwd.empty()) {
      posix_spawn_file_actions_addchdir_np(&actions_, options.cwd.c_str());
    }
    return OkStatus();
  }
  const posix_spawnattr_t* attributes() const { return &attributes_; }
  const posix_spawn_file_actions_t* actions() const { return &actions_; }

 private:
  Status AddFd(int fd, int target, int null_flags) {
    if (fd < 0) {
      posix_spawn_file_actions_addopen(&actions_, target, "/dev/null", null_flags, 0);
      return OkStatus();
    }
    if (fd <= 2 && fd != target) {
      // An earlier action would replace it; a copy above the three is safe.
      UniqueFd copy(fcntl(fd, F_DUPFD_CLOEXEC, 3));
      if (!copy.valid()) return ErrnoStatus(errno, "dup of a standard descriptor");
      fd = copy.get();
      copies_.push_back(std::move(copy));
    }
    posix_spawn_file_actions_adddup2(&actions_, fd, target);
    return OkStatus();
  }

  posix_spawnattr_t attributes_;
  posix_spawn_file_actions_t actions_;
  std::vector<UniqueFd> copies_;
};

int PollTimeoutMs(MonotonicTime deadline) {
  auto left =
      std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 3600 * 1000));
}

std::string LastLine(const std::string& text) {
  size_t end = text.find_last_not_of(" \t\r\n");
  if (end == std::string::npos) return "";
  size_t begin = text.rfind('\n', end);
  return text.substr(begin == std::string::npos ? 0 : begin + 1,
                     end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

// One captured stream of a command.
struct Capture {
  UniqueFd fd;
  std::string* out = nullptr;

  // False at the end of the stream.
  bool Read(size_t bytes_max, bool* truncated) {
    char buffer[16384];
    for (;;) {
      ssize_t n = read(fd.get(), buffer, sizeof buffer);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0) return errno == EAGAIN;
      if (n == 0) return false;
      size_t keep = std::min(static_cast<size_t>(n), bytes_max - std::min(bytes_max, out->size()));
      out->append(buffer, keep);
      if (keep < static_cast<size_t>(n)) *truncated = true;
    }
  }
};

StatusOr<UniqueFd> InputFile(const std::string& input) {
  UniqueFd fd(memfd_create("torpor-stdin", MFD_CLOEXEC));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create");
  for (size_t done = 0; done < input.size();) {
    ssize_t n = write(fd.get(), input.data() + done, input.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return ErrnoStatus(errno, "write to a memfd");
    done += static_cast<size_t>(n);
  }
  lseek(fd.get(), 0, SEEK_SET);
  return fd;
}

// Reads both streams until they end, the process has ended and nothing more comes, or the deadline.
// True when the process ended in time.
bool Collect(const Process& process, Capture (&streams)[2], const CommandOptions& options,
             bool* truncated) {
  bool ended = false;
  MonotonicTime until = options.deadline;
  for (;;) {
    pollfd polled[3] = {{streams[0].fd.get(), POLLIN, 0},
                        {streams[1].fd.get(), POLLIN, 0},
                        {ended ? -1 : process.pidfd(), POLLIN, 0}};
    if (ended && !streams[0].fd.valid() && !streams[1].fd.valid()) return true;
    int n = poll(polled, 3, PollTimeoutMs(until));
    if (n < 0 && errno == EINTR) continue;
    if (n == 0 && std::chrono::steady_clock::now() >= until) return ended;
    for (int i = 0; i < 2; ++i) {
      if (polled[i].revents != 0 && !streams[i].Read(options.output_bytes_max, truncated)) {
        streams[i].fd.Reset();
      }
    }
    if (polled[2].revents != 0) {
      ended = true;
      until = std::chrono::steady_clock::now() + std::chrono::milliseconds(100);
    }
  }
}

}  // namespace

Children& Children::Get() {
  static Children* children = new Children;
  return *children;
}

ExitStatus ExitStatusOf(const siginfo_t& info) {
  ExitStatus status;
  if (info.si_code == CLD_EXITED) {
    status.code = info.si_status;
  } else {
    status.signal = info.si_status;
  }
  return status;
}

std::string ExitStatus::ToString() const {
  if (signal != 0) return fmt::format("signal {} ({})", signal, strsignal(signal));
  return fmt::format("exit code {}", code);
}

Process::~Process() {
  if (exit_ == nullptr) return;
  Children& children = Children::Get();
  MutexLock lock(&children.mu);
  auto it = children.spawned.find(pid_);
  if (it != children.spawned.end() && it->second == exit_) children.spawned.erase(it);
}

Process::Process(Process&&) noexcept = default;

Process& Process::operator=(Process&& other) noexcept {
  std::swap(pid_, other.pid_);
  std::swap(pidfd_, other.pidfd_);
  std::swap(exit_, other.exit_);
  return *this;
}

StatusOr<ExitStatus> Process::Wait(MonotonicTime deadline) {
  if (exit_ == nullptr) return Error(Code::kFailedPrecondition, "INTERNAL", "no process");
  bool ended = WaitPidfd(pidfd_.get(), deadline);
  Children& children = Children::Get();
  MutexLock lock(&children.mu);
  while (!exit_->status.has_value()) {
    if (!ended) {
      return Error(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                   fmt::format("process {} did not end in time", pid_));
    }
    if (children.reaper_active) {
      children.changed.Wait(&children.mu);  // the reaper is about to collect it
      continue;
    }
    siginfo_t info{};
    if (waitid(kIdPidfd, static_cast<id_t>(pidfd_.get()), &info, WEXITED) != 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, fmt::format("waitid of process {}", pid_));
    }
    exit_->status = ExitStatusOf(info);
    children.spawned.erase(pid_);
  }
  return *exit_->status;
}

Status Process::Signal(int signal) const { return SignalPidfd(pidfd_.get(), signal); }

Status Process::SignalGroup(int signal) const {
  Children& children = Children::Get();
  MutexLock lock(&children.mu);
  // Once collected, the number may belong to another group.
  if (exit_ == nullptr || exit_->status.has_value()) return OkStatus();
  if (kill(-pid_, signal) != 0 && errno != ESRCH) {
    return ErrnoStatus(errno, fmt::format("kill of process group {}", pid_));
  }
  return OkStatus();
}

StatusOr<Process> Spawn(const std::vector<std::string>& argv, const SpawnOptions& options) {
  if (argv.empty() || argv[0].empty()) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID", "no program to start");
  }
  std::vector<std::string> arguments = argv;
  std::vector<std::string> environment = Environment(options);
  std::vector<char*> argument_pointers = Pointers(arguments);
  std::vector<char*> environment_pointers = Pointers(environment);
  SpawnSetup setup;
  RETURN_IF_ERROR(setup.Add(options));
  UniqueFd ruleset;
  if (options.confinement) {
    ASSIGN_OR_RETURN(ruleset, MakeRuleset(*options.confinement, argv[0]));
  }

  Process process;
  Children& children = Children::Get();
  MutexLock lock(&children.mu);
  int error = 0;
  auto spawn = [&] {
    error = posix_spawnp(&process.pid_, argv[0].c_str(), setup.actions(), setup.attributes(),
                         argument_pointers.data(), environment_pointers.data());
  };
  if (ruleset.valid()) {
    // A thread is confined alone and for ever, and its children with it: so one for this child.
    std::thread confined([&] {
      error = EnterRuleset(ruleset.get());
      if (error == 0) spawn();
    });
    confined.join();
  } else {
    spawn();
  }
  if (error != 0) return ErrnoStatus(error, fmt::format("start of {}", argv[0]));
  process.exit_ = std::make_shared<ChildExit>();
  children.spawned[process.pid_] = process.exit_;
  children.changed.SignalAll();  // the reaper may have had no child so far
  auto pidfd = OpenPidfd(process.pid_);
  if (!pidfd.ok()) {
    // Without a handle nobody could wait for it. The lock is ours, so the pid is still its own.
    kill(process.pid_, SIGKILL);
    children.spawned.erase(process.pid_);
    process.exit_.reset();
    return pidfd.status();
  }
  process.pidfd_ = std::move(*pidfd);
  return process;
}

StatusOr<CommandResult> RunCommand(const std::vector<std::string>& argv,
                                   const CommandOptions& options) {
  CommandResult result;
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  UniqueFd out_write(out[1]);
  Capture streams[2] = {{UniqueFd(out[0]), &result.out}, {UniqueFd(), &result.err}};
  if (pipe2(err, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe");
  UniqueFd err_write(err[1]);
  streams[1].fd = UniqueFd(err[0]);
  for (Capture& stream : streams) fcntl(stream.fd.get(), F_SETFL, O_NONBLOCK);

  SpawnOptions spawn;
  spawn.env = options.env;
  spawn.cwd = options.cwd;
  spawn.confinement = options.confinement;
  spawn.stdout_fd = out_write.get();
  spawn.stderr_fd = err_write.get();
  UniqueFd input;
  if (!options.input.empty()) {
    ASSIGN_OR_RETURN(input, InputFile(options.input));
    spawn.stdin_fd = input.get();
  }
  ASSIGN_OR_RETURN(Process process, Spawn(argv, spawn));
  out_write.Reset();
  err_write.Reset();
  if (!Collect(process, streams, options, &result.truncated)) {
    Status killed = process.SignalGroup(SIGKILL);
    auto status = process.Wait(std::chrono::steady_clock::now() + std::chrono::seconds(5));
    std::string how = killed.ok() && status.ok() ? "was killed" : "could not be killed";
    return Error(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                 fmt::format("{} ran too long and {}: {}", argv[0], how, LastLine(result.err)));
  }
  ASSIGN_OR_RETURN(result.status, process.Wait(MonotonicTime::max()));
  return result;
}

StatusOr<std::string> CommandOutput(const std::vector<std::string>& argv,
                                    const CommandOptions& options) {
  ASSIGN_OR_RETURN(CommandResult result, RunCommand(argv, options));
  if (!result.status.ok()) {
    return Error(
        Code::kInternal, "INTERNAL",
        fmt::format("{}: {}: {}", argv[0], result.status.ToString(), LastLine(result.err)));
  }
  return std::move(result.out);
}

StatusOr<UniqueFd> OpenPidfd(pid_t pid) {
  UniqueFd fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (fd.valid()) return fd;
  if (errno == ESRCH) {
    return Error(Code::kNotFound, "INTERNAL", fmt::format("no process {}", pid));
  }
  return ErrnoStatus(errno, fmt::format("pidfd_open {}", pid));
}

bool WaitPidfd(int pidfd, MonotonicTime deadline) {
  for (;;) {
    pollfd polled{pidfd, POLLIN, 0};
    int n = poll(&polled, 1, PollTimeoutMs(deadline));
    if (n > 0) return true;
    if (n < 0 && errno != EINTR) return false;
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

Status SignalPidfd(int pidfd, int signal) {
  if (syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0 || errno == ESRCH) {
    return OkStatus();
  }
  return ErrnoStatus(errno, "pidfd_send_signal");
}

}  // namespace torpor::os
