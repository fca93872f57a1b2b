#include "bench/stack.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <climits>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <nlohmann/json.hpp>

#include "base/uuid.h"
#include "bench/bare.h"
#include "os/fs/remove.h"
#include "os/process/process.h"

namespace torpor::bench {
namespace {

using std::chrono::seconds;

constexpr auto kStartLimit = seconds(75);
constexpr auto kStopLimit = std::chrono::minutes(4);
constexpr size_t kTailLines = 15;

Status RemoveDirectory(const std::string& dir) {
  ASSIGN_OR_RETURN(os::DirFd parent, os::DirFd::OpenPath(kStackParent));
  return os::RemoveTree(parent, std::filesystem::path(dir).filename().string());
}

Status Down(const std::string& binary, const std::string& dir) {
  return os::CommandOutput({binary, "down", "--dir", dir},
                           {.deadline = Clock::Real()->Now() + kStopLimit})
      .status();
}

// Settings of single roles that `torpor up` has no flag for.
std::string SectionsOf(const StackOptions& options) {
  std::string text;
  if (options.router_threads > 0) {
    text += fmt::format("router:\n  router-threads: {}\n  access-log: \"off\"\n",
                        options.router_threads);
  }
  if (options.warm_pool == 0) text += "worker:\n  warm-pool: 0\n  control-socket: \"off\"\n";
  if (options.warm_pool > 0) {
    text += fmt::format("worker:\n  warm-pool: {0}\n  warm-pool-per-template: {0}\n",
                        options.warm_pool);
  }
  return text;
}

}  // namespace

StatusOr<std::vector<int>> FreePorts(size_t count) {
  std::vector<UniqueFd> sockets;  // held together, so that they differ
  std::vector<int> ports;
  for (size_t i = 0; i < count; ++i) {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    if (!fd.valid() || bind(fd.get(), reinterpret_cast<sockaddr*>(&address), size) != 0 ||
        getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
      return ErrnoStatus(errno, "free port");
    }
    ports.push_back(ntohs(address.sin_port));
    sockets.push_back(std::move(fd));
  }
  return ports;
}

std::string SelfPath() {
  // Read once: a new build may replace the program while it runs.
  static const std::string self = [] {
    char path[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path);
    return n > 0 ? std::string(path, static_cast<size_t>(n)) : "torpor";
  }();
  return self;
}

StatusOr<std::unique_ptr<Stack>> Stack::Start(const StackOptions& options) {
  const std::string dir = std::string(kStackParent) + "/" + kStackPrefix + RandomHex(4);
  ASSIGN_OR_RETURN(std::vector<int> ports, FreePorts(4));
  auto local = [&](int i) { return "127.0.0.1:" + std::to_string(ports[static_cast<size_t>(i)]); };
  if (mkdir(dir.c_str(), 0755) != 0) return ErrnoStatus(errno, "mkdir " + dir);
  const std::string binary = options.binary.empty() ? SelfPath() : options.binary;
  auto stack = std::unique_ptr<Stack>(new Stack(dir, local(2), false, binary));
  std::vector<std::string> command = {binary, "up", "--detach", "--dir", dir};
  auto flag = [&](const std::string& name, const std::string& value) {
    command.push_back("--" + name);
    command.push_back(value);
  };
  flag("on-stop", "kill");  // nobody wants the actors back
  flag("api-listen", local(0));
  flag("http-listen", local(1));
  flag("router-listen", local(2));
  flag("router-admin-listen", local(3));
  flag("image-layout-dir", options.image_layout_dir);
  flag("runsc", options.runsc);
  flag("platform", options.platform);
  flag("class", options.sandbox_class);
  if (options.worker_actors > 0) flag("worker-actors", std::to_string(options.worker_actors));
  const std::string settings = SectionsOf(options);
  if (!settings.empty()) {
    const std::string path = dir + "/bench.yaml";
    std::ofstream(path) << settings;
    flag("config", path);
  }
  command.insert(command.end(), options.flags.begin(), options.flags.end());
  auto result =
      os::RunCommand(command, {.deadline = Clock::Real()->Now() + kStartLimit, .env = options.env});
  Status status = result.status();
  if (status.ok() && !result->status.ok()) {
    status = Status(Code::kUnavailable, "torpor up: " + result->err + stack->LogTails());
  }
  if (status.ok()) return stack;
  (void)stack->Stop();
  return status;
}

StatusOr<std::unique_ptr<Stack>> Stack::Attach(const std::string& dir,
                                               const std::string& router_address) {
  auto stack = std::unique_ptr<Stack>(new Stack(dir, router_address, true, SelfPath()));
  if (stack->supervisor_pid() == 0) {
    return Error(Code::kNotFound, "FIELD_INVALID", "no torpor up has " + dir);
  }
  return stack;
}

Stack::~Stack() {
  Status stopped = Stop();
  if (!stopped.ok()) {
    fprintf(stderr, "warning: %s: %s\n", dir_.c_str(), std::string(stopped.message()).c_str());
  }
}

pid_t Stack::supervisor_pid() const {
  pid_t pid = 0;
  std::ifstream(dir_ + "/run/up.pid") >> pid;
  return pid;
}

std::map<std::string, pid_t> Stack::RolePids() const {
  std::ifstream file(dir_ + "/run/roles.json");
  std::ostringstream text;
  text << file.rdbuf();
  auto json = nlohmann::json::parse(text.str(), nullptr, false);
  std::map<std::string, pid_t> pids;
  if (!json.is_object() || !json["roles"].is_array()) return pids;
  for (const auto& role : json["roles"]) {
    if (role.contains("name") && role.contains("pid")) pids[role["name"]] = role["pid"];
  }
  return pids;
}

Status Stack::Stop() {
  if (attached_ || stopped_) return OkStatus();
  stopped_ = true;
  Status down = Down(binary_, dir_);
  // What still runs needs its files.
  return down.ok() ? RemoveDirectory(dir_) : down;
}

std::string Stack::LogTails() const {
  std::string out;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(dir_ + "/logs", error)) {
    std::deque<std::string> lines;
    std::ifstream file(entry.path());
    for (std::string line; std::getline(file, line);) {
      lines.push_back(line.substr(0, 400));
      if (lines.size() > kTailLines) lines.pop_front();
    }
    out += "\n--- " + entry.path().filename().string() + "\n";
    for (const std::string& line : lines) out += line + "\n";
  }
  return out;
}

Status RemoveLeftovers() {
  RETURN_IF_ERROR(RemoveBareLeftovers());
  ASSIGN_OR_RETURN(os::DirFd parent, os::DirFd::OpenPath(kStackParent));
  ASSIGN_OR_RETURN(std::vector<os::DirEntry> entries, parent.List());
  for (const os::DirEntry& entry : entries) {
    if (!entry.is_directory || entry.name.compare(0, strlen(kStackPrefix), kStackPrefix) != 0) {
      continue;
    }
    const std::string dir = std::string(kStackParent) + "/" + entry.name;
    RETURN_IF_ERROR(RemoveBareSandboxes(dir));
    RETURN_IF_ERROR(Down(SelfPath(), dir));
    RETURN_IF_ERROR(os::RemoveTree(parent, entry.name));
  }
  return OkStatus();
}

}  // namespace torpor::bench
