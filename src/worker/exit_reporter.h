#pragma once
// Where a worker tells that a guest ended by itself. The gRPC implementation is in worker/rpc.

#include "torpor/v1/common.pb.h"

namespace torpor::worker {

// Thread-safe.
class ExitReporter {
 public:
  virtual ~ExitReporter() = default;
  // Returns at once; the report is repeated until it has arrived.
  virtual void Report(torpor::v1::ExitReport report) = 0;
};

}  // namespace torpor::worker
