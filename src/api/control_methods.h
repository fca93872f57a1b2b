#pragma once
// What of ateapi.Control and torpor.v1.Ops is served, and by which method of the control plane.

#include "api/dispatcher.h"
#include "api/logs.h"
#include "control/control_plane.h"

namespace torpor::api {

// `control` and `logs` must outlive the last call; Dispatcher::Stop ends them.
void ServeControlPlane(Dispatcher* dispatcher, control::ControlPlane* control, LogReader* logs);

}  // namespace torpor::api
