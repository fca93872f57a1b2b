#pragma once
// How the API gets the log lines of an actor: from the agent of the node that holds them.

#include <memory>
#include <string>

#include "api/dispatcher.h"
#include "torpor/v1/ops.pb.h"

namespace torpor::api {

// The gRPC implementation is in service/, fakes lie beside the tests. Thread-safe.
class LogReader {
 public:
  virtual ~LogReader() = default;
  // Streams the lines from the agent at `agent_address` (`unix:<path>` or `host:port`) and finishes
  // `stream`. Ends early when its reader left. Never blocks.
  virtual void Read(const std::string& agent_address, const torpor::v1::ReadLogsRequest& request,
                    const Call& call, std::shared_ptr<ResponseStream> stream) = 0;
};

}  // namespace torpor::api
