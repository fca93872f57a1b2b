#pragma once
// Reads the container logs that the worker wrote below logs/ (JSON lines, <container>.log and its
// predecessor <container>.log.1). Thread-safe; a call blocks until everything is read, or for as
// long as it follows.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agent/node_dirs.h"
#include "base/status.h"
#include "torpor/v1/ops.pb.h"

namespace torpor::agent {

// A line as the worker writes it; nullopt when it is none. Pure.
std::optional<torpor::v1::LogLine> ParseLogLine(std::string_view json);

class LogReader {
 public:
  explicit LogReader(const NodeDirs* dirs) : dirs_(dirs) {}

  // False ends the reading.
  using Sink = std::function<bool(const torpor::v1::LogLine&)>;
  // Lines of all containers (or the one asked for) in time order; then, if asked to follow, new
  // ones as they come until `stopped` or the sink ends it. NOT_FOUND ACTOR_NOT_FOUND when this node
  // holds nothing of the actor.
  Status Read(const torpor::v1::ReadLogsRequest& request, const Sink& sink,
              const std::function<bool()>& stopped) const;

 private:
  // The actor with this name whose start here was the last.
  StatusOr<std::string> FindActor(const ateapi::ObjectRef& actor) const;

  const NodeDirs* const dirs_;
};

}  // namespace torpor::agent
