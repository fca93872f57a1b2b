#pragma once
// The last door of an error: none leaves without a reason. Knows no gRPC.

#include "base/status.h"

namespace torpor::rpc {

// `status` with an ErrorInfo whose reason its code implies (INTERNAL where it implies none), if it
// had none, and a message in valid UTF-8; OK stays OK.
Status WithReason(const Status& status);

}  // namespace torpor::rpc
