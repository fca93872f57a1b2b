#pragma once

// Signals of a workload: stop on SIGTERM and SIGINT (as PID 1 a program that does not ask for
// SIGTERM never gets it) and ignore SIGPIPE.

#include "workloads/http/server.h"

namespace torpor::workloads::http {

// Makes signals stop this server, which must outlive them. Called before Listen, so that whoever
// sees the port open can also stop the program. At most one server per process.
void StopOnSignals(Server* server);

}  // namespace torpor::workloads::http
