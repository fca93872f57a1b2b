#include <malloc.h>
#include <unistd.h>

#include <cstdio>

#include "workloads/base/flags.h"
#include "workloads/base/io.h"
#include "workloads/glutton/http_app.h"
#include "workloads/glutton/service.h"
#include "workloads/http/server.h"
#include "workloads/http/stop_signals.h"

namespace torpor::workloads {
namespace {

void AddFlags(Flags* flags) {
  flags->Add("grpc-listen-addr", ":8080", "address of the service, in either mode");
  flags->Add("metrics-listen-addr", ":9090", "address of /metrics; empty is none");
  flags->Add("data-dir", "", "directory for files (required)");
  flags->Add("mode", "http", "http; grpc is not in this build");
  flags->AddBool("version", "print the version");
  flags->AddBool("help", "print the flags");
}

std::string Listen(http::Server* server, http::App* app, const std::string& address,
                   const std::string& what) {
  std::string host;
  uint16_t port = 0;
  if (!http::SplitAddress(address, &host, &port)) return "'" + address + "' is no address";
  std::string bound;
  std::string error = server->Listen(host, port, app, &bound);
  if (error.empty()) LogLine("glutton: " + what + " listening on " + bound);
  return error;
}

std::string Serve(const Flags& flags) {
  if (flags.Text("mode") == "grpc") {
    return "this build serves http only: --mode=grpc is not available, use --mode=http";
  }
  if (flags.Text("mode") != "http") return "--mode must be http or grpc";
  if (flags.Text("data-dir").empty()) return "--data-dir is required";
  const auto memory_bytes = static_cast<uint64_t>(::sysconf(_SC_PHYS_PAGES)) *
                            static_cast<uint64_t>(::sysconf(_SC_PAGESIZE));
  glutton::Service service(flags.Text("data-dir"), memory_bytes);
  if (glutton::Status status = service.Open(); !status.ok()) return status.message;
  http::Server server;
  http::StopOnSignals(&server);
  glutton::HttpApp app(&server, &service);
  glutton::MetricsApp metrics(&app);
  std::string error = Listen(&server, &app, flags.Text("grpc-listen-addr"), "service");
  if (error.empty() && !flags.Text("metrics-listen-addr").empty()) {
    error = Listen(&server, &metrics, flags.Text("metrics-listen-addr"), "metrics");
  }
  if (!error.empty()) return error;
  server.Run();
  // Pool threads may still use what is on this stack, and there is nothing to clean up.
  ::_exit(0);
}

int Main(int argc, char** argv) {
  // Each arena reserves 64 MiB of address space and keeps freed pages, which would blur what the
  // requested arrays cost.
  ::mallopt(M_ARENA_MAX, 2);
  Flags flags;
  AddFlags(&flags);
  std::string error = flags.Parse(argc, argv);
  if (error.empty() && flags.Set("help")) {
    std::printf("glutton: eats memory, disk and CPU on request\n%s", flags.Usage().c_str());
    return 0;
  }
  if (error.empty() && flags.Set("version")) {
    std::printf("glutton %s\n", TORPOR_VERSION);
    return 0;
  }
  if (error.empty()) error = Serve(flags);
  std::fprintf(stderr, "glutton: %s\n", error.c_str());
  return 2;
}

}  // namespace
}  // namespace torpor::workloads

int main(int argc, char** argv) { return torpor::workloads::Main(argc, argv); }
