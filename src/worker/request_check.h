#pragma once
// What a worker checks in a request again, although the agent did: names that become files,
// directories that must lie below the actor's own, ports. Pure functions; INVALID_ARGUMENT
// FIELD_INVALID names every bad field.

#include <string>
#include <vector>

#include "base/status.h"
#include "torpor/v1/worker.pb.h"

namespace torpor::worker {

Status CheckStart(const torpor::v1::StartWorkloadRequest& request);
Status CheckCapture(const torpor::v1::CaptureWorkloadRequest& request);
Status CheckStop(const torpor::v1::StopWorkloadRequest& request);

// The ports of a guest that the door lets through: http_port (0 = 80) and the probes'.
std::vector<int> PortsOf(const torpor::v1::WorkloadSpec& spec);

}  // namespace torpor::worker
