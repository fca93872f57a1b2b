#pragma once
// Checks of a node directory, and of the control plane's records against it.
//
// Reads only, and takes no lock, so it may run beside the roles: what changes meanwhile can look
// wrong for a moment, so a finding that names an actor under way is left out.

#include <map>
#include <set>
#include <string>
#include <vector>

#include "apps/doctor/finding.h"
#include "ateapi/ateapi.pb.h"
#include "base/status.h"
#include "torpor/v1/ops.pb.h"

namespace torpor::doctor {

struct LocalSnapshot {
  std::string name;
  int64_t generation = 0;  // 0: its manifest cannot be read
};

// What the directory holds.
struct NodeContents {
  std::string node_name;
  std::map<std::string, std::vector<LocalSnapshot>> actors;  // by uid; also without a snapshot
};

// Adds what is wrong to `out`. NOT_FOUND when there is no such directory.
StatusOr<NodeContents> CheckNodeDirectory(const std::string& path, Findings* out);

// What the control plane has of one actor.
struct ActorRecords {
  ateapi::Actor actor;
  std::vector<torpor::v1::Generation> generations;
};
void CheckRecordsAgainstNode(const std::vector<ActorRecords>& records, const NodeContents& contents,
                             Findings* out);

}  // namespace torpor::doctor
