#include "workloads/http/stop_signals.h"

#include <csignal>

namespace torpor::workloads::http {
namespace {

Server* g_server = nullptr;  // a signal handler has no other way to reach it

void OnSignal(int) { g_server->Stop(); }

}  // namespace

void StopOnSignals(Server* server) {
  g_server = server;
  struct sigaction action{};
  action.sa_handler = OnSignal;
  action.sa_flags = SA_RESTART;
  ::sigaction(SIGTERM, &action, nullptr);
  ::sigaction(SIGINT, &action, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
}

}  // namespace torpor::workloads::http
