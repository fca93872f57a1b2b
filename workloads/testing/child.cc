#include "workloads/testing/child.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <system_error>

extern char** environ;

namespace torpor::workloads::testing {
namespace {

constexpr int64_t kPatienceNs = 10'000'000'000;

}  // namespace

Child::Child(std::vector<std::string> arguments) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) std::abort();
  output_.Reset(ends[0]);
  const UniqueFd write_end(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_adddup2(&actions, ends[1], STDERR_FILENO);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  if (::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
  ::posix_spawn_file_actions_destroy(&actions);
}

Child::~Child() {
  if (pid_ < 0) return;
  Signal(SIGKILL);
  Wait();
}

bool Child::ReadMore(int64_t deadline_ns) {
  while (true) {
    const int64_t left_ns = deadline_ns - MonotonicNs();
    if (left_ns <= 0) return false;
    pollfd waiting{output_.get(), POLLIN, 0};
    const int ready = ::poll(&waiting, 1, static_cast<int>(left_ns / 1'000'000) + 1);
    if (ready <= 0) continue;
    char buffer[4096];
    const ssize_t n = ::read(output_.get(), buffer, sizeof(buffer));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    log_.append(buffer, static_cast<size_t>(n));
    return true;
  }
}

bool Child::WaitForText(const std::string& text) {
  const int64_t deadline = MonotonicNs() + kPatienceNs;
  while (log_.find(text) == std::string::npos) {
    if (!ReadMore(deadline)) return false;
  }
  return true;
}

uint16_t Child::WaitForPort(const std::string& prefix) {
  if (!WaitForText(prefix)) return 0;
  const size_t start = log_.find(prefix) + prefix.size();
  const int64_t deadline = MonotonicNs() + kPatienceNs;
  while (log_.find('\n', start) == std::string::npos) {
    if (!ReadMore(deadline)) return 0;
  }
  const size_t colon = log_.find(':', start);
  return static_cast<uint16_t>(std::strtoul(log_.c_str() + colon + 1, nullptr, 10));
}

void Child::Signal(int number) {
  if (pid_ > 0) ::kill(pid_, number);
}

int Child::Wait() {
  const int64_t deadline = MonotonicNs() + kPatienceNs;
  while (ReadMore(deadline)) {
  }
  int status = 0;
  while (pid_ > 0 && MonotonicNs() < deadline) {
    if (::waitpid(pid_, &status, WNOHANG) == pid_) {
      pid_ = -1;
      return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    }
    ::usleep(1000);
  }
  return -1;
}

TempDir::TempDir() {
  std::string pattern = std::filesystem::temp_directory_path() / "torpor-workload-XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) std::abort();
  path_ = pattern;
}

TempDir::~TempDir() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace torpor::workloads::testing
