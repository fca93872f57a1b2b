#pragma once
// Checks of everything in a request that becomes a path, a key or a host name. The API has checked
// it before, and the worker will again. INVALID_ARGUMENT FIELD_INVALID naming the field. Pure.

#include <string>

#include "base/status.h"
#include "torpor/v1/node.pb.h"

namespace torpor::agent {

Status CheckHeader(const torpor::v1::OpHeader& header);
Status CheckRequest(const torpor::v1::StartActorRequest& request);
Status CheckRequest(const torpor::v1::CaptureActorRequest& request);
Status CheckRequest(const torpor::v1::UploadSnapshotRequest& request);
Status CheckRequest(const torpor::v1::StopActorRequest& request);
Status CheckRequest(const torpor::v1::DeleteLocalSnapshotsRequest& request);

}  // namespace torpor::agent
