#include "apps/role/role.h"

#include <dirent.h>
#include <unistd.h>

#include <cstdio>
#include <ctime>
#include <fstream>

#include <fmt/format.h>

namespace torpor {
namespace {

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) / 1e9;
}

double ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t size = 0;
  int64_t resident = 0;
  statm >> size >> resident;
  return static_cast<double>(resident * sysconf(_SC_PAGESIZE));
}

double OpenDescriptors() {
  DIR* dir = opendir("/proc/self/fd");
  if (dir == nullptr) return 0;
  int n = -3;  // ".", ".." and the directory itself
  while (readdir(dir) != nullptr) ++n;
  closedir(dir);
  return n;
}

}  // namespace

Role::Role(std::string name, std::string metrics_listen)
    : name_(std::move(name)), metrics_listen_(std::move(metrics_listen)) {
  InitLog(name_);
  signal(SIGPIPE, SIG_IGN);
  sigemptyset(&stop_signals_);
  sigaddset(&stop_signals_, SIGTERM);
  sigaddset(&stop_signals_, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals_, nullptr);
  metrics_.Gauge("torpor_build_info", "1, with the version of the program.", {"role", "version"})
      .Set({name_, TORPOR_VERSION}, 1);
  metrics_.CounterFunction("process_cpu_seconds_total", "CPU time of this process.", CpuSeconds);
  metrics_.GaugeFunction("process_resident_memory_bytes", "Memory of this process.", ResidentBytes);
  metrics_.GaugeFunction("process_open_fds", "Open file descriptors.", OpenDescriptors);
}

Status Role::ServeUntilSignal(const std::string& metrics_socket, LogFields fields) {
  std::unique_ptr<AdminListener> admin;
  if (metrics_listen_ != "off" && !metrics_socket.empty()) {
    const std::string listen = metrics_listen_.empty() ? "unix:" + metrics_socket : metrics_listen_;
    router::AdminPages pages;
    pages.ready = [] { return true; };
    pages.status = [this] { return fmt::format("{{\"role\":\"{}\"}}\n", name_); };
    pages.metrics = [this] { return metrics_.Render(); };
    ASSIGN_OR_RETURN(admin, AdminListener::Start(listen, std::move(pages)));
    fields.emplace_back("metrics", admin->address());
  }
  LogInfo("ready", fields);
  int signal_number = 0;
  sigwait(&stop_signals_, &signal_number);
  LogInfo("stopping", {{"signal", fmt::to_string(signal_number)}});
  return OkStatus();
}

int FailRole(const Status& status) {
  fprintf(stderr, "error: %s\n", std::string(status.message()).c_str());
  return status.code() == Code::kInvalidArgument ? 2 : 1;
}

int RunRole(const std::vector<std::string>& args, const RoleSpec& spec) {
  Options options(spec.name);
  spec.declare(&options);
  std::string metrics_listen;
  if (!spec.metrics_socket_help.empty()) {
    options.String("metrics-listen", &metrics_listen,
                   fmt::format("where /healthz, /readyz and /metrics are served: unix:PATH, "
                               "ADDRESS:PORT or off (default unix:{})",
                               spec.metrics_socket_help));
  }
  if (Status status = options.Parse(args); !status.ok()) return FailRole(status);
  if (options.asked()) {
    printf("%s", options.Answer(spec.title).c_str());
    return 0;
  }
  if (Status status = spec.complete(); !status.ok()) return FailRole(status);
  Role role(spec.name, metrics_listen);
  Status status = spec.run(role);
  if (!status.ok()) return FailRole(status);
  LogInfo("stopped");
  return 0;
}

}  // namespace torpor
