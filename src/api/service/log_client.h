#pragma once
// LogReader over gRPC: torpor.v1.Ops.ReadLogs of the node agent. Lines are read as fast as the
// reader of the stream takes them.

#include <memory>

#include "api/logs.h"

namespace torpor::api {

class LogClient : public LogReader {
 public:
  LogClient();
  ~LogClient() override;  // Stop()
  // UNAVAILABLE NODE_UNREACHABLE when the agent does not answer.
  void Read(const std::string& agent_address, const torpor::v1::ReadLogsRequest& request,
            const Call& call, std::shared_ptr<ResponseStream> stream) override;
  // Ends every stream and waits until the last one is finished.
  void Stop();

 private:
  struct State;
  const std::shared_ptr<State> state_;
};

}  // namespace torpor::api
