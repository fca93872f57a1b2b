#include "runtime/gvisor/leftovers.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <sstream>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/unique_fd.h"
#include "model/reasons.h"
#include "os/process/process.h"

namespace torpor::gvisor {
namespace {

constexpr unsigned long kExiting = 4;  // PF_EXITING of the kernel

std::string ReadSmall(const std::string& path) {
  UniqueFd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd.valid()) return "";
  std::string out;
  char buffer[4096];
  for (ssize_t n; (n = read(fd.get(), buffer, sizeof buffer)) > 0;) {
    out.append(buffer, static_cast<size_t>(n));
  }
  return out;
}

bool HasArgument(const std::string& command_line, const std::string& argument) {
  size_t at = command_line.find(argument);
  while (at != std::string::npos) {
    bool begins = at == 0 || command_line[at - 1] == '\0';
    size_t end = at + argument.size();
    if (begins && (end == command_line.size() || command_line[end] == '\0')) return true;
    at = command_line.find(argument, at + 1);
  }
  return false;
}

}  // namespace

std::vector<pid_t> FindByRoot(const std::string& root) {
  std::vector<pid_t> found;
  std::unique_ptr<DIR, int (*)(DIR*)> proc(opendir("/proc"), closedir);
  if (proc == nullptr) return found;
  const std::string argument = "--root=" + root;
  while (dirent* entry = readdir(proc.get())) {
    std::string name = entry->d_name;
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::string command_line = ReadSmall("/proc/" + name + "/cmdline");
    // runsc, runsc-sandbox, runsc-gofer or the path of a binary: never somebody's editor.
    std::string program = command_line.substr(0, command_line.find('\0'));
    if (program.find("runsc") == std::string::npos) continue;
    if (HasArgument(command_line, argument)) found.push_back(std::stoi(name));
  }
  return found;
}

std::string ProgramOf(pid_t pid) {
  std::string command_line = ReadSmall(fmt::format("/proc/{}/cmdline", pid));
  return command_line.substr(0, command_line.find('\0'));
}

bool IsExiting(std::string_view stat) {
  // pid (comm) state ppid pgrp session tty tpgid flags ...; comm may hold anything.
  size_t end = stat.rfind(')');
  if (end == std::string_view::npos) return false;
  std::istringstream fields{std::string(stat.substr(end + 1))};
  std::string skip;
  unsigned long flags = 0;
  for (int i = 0; i < 6; ++i) fields >> skip;
  return fields >> flags && (flags & kExiting) != 0;
}

bool OnlyExitingThreads(pid_t pid) {
  std::string tasks = fmt::format("/proc/{}/task", pid);
  std::unique_ptr<DIR, int (*)(DIR*)> dir(opendir(tasks.c_str()), closedir);
  if (dir == nullptr) return false;
  bool any = false;
  while (dirent* entry = readdir(dir.get())) {
    if (entry->d_name[0] == '.') continue;
    std::string stat = ReadSmall(tasks + "/" + entry->d_name + "/stat");
    if (stat.empty()) continue;  // it has ended meanwhile
    if (!IsExiting(stat)) return false;
    any = true;
  }
  return any;
}

Status KillUntilGone(const std::function<std::vector<pid_t>()>& find, MonotonicTime deadline) {
  for (std::vector<pid_t> pids = find(); !pids.empty(); pids = find()) {
    if (std::chrono::steady_clock::now() >= deadline) {
      return Error(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED",
                   fmt::format("processes {} do not end", fmt::join(pids, " ")));
    }
    for (pid_t pid : pids) {
      auto pidfd = os::OpenPidfd(pid);
      if (!pidfd.ok()) continue;
      // Found again with the handle in hand: the number is still the process that was meant.
      std::vector<pid_t> again = find();
      if (std::find(again.begin(), again.end(), pid) == again.end()) continue;
      RETURN_IF_ERROR(os::SignalPidfd(pidfd->get(), SIGKILL));
      os::WaitPidfd(pidfd->get(), std::min(deadline, std::chrono::steady_clock::now() +
                                                         std::chrono::milliseconds(200)));
    }
  }
  return OkStatus();
}

}  // namespace torpor::gvisor
