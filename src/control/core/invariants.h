#pragma once
// The rules that hold between committed records at every moment, as a check. Pure; for the
// simulation, the crash tests and an operator who doubts the store.

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/time.h"
#include "scheduler/placement.h"
#include "torpor/v1/ops.pb.h"
#include "torpor/v1/record.pb.h"

namespace torpor::control::core {

template <typename T>
using Rows = std::vector<std::pair<std::string, std::shared_ptr<const T>>>;  // by key

struct Records {
  Rows<torpor::v1::AtespaceRecord> atespaces;
  Rows<torpor::v1::ActorRecord> actors;
  Rows<torpor::v1::TagRecord> tags;
  Rows<torpor::v1::NodeRecord> nodes;
  Rows<torpor::v1::WorkerRecord> workers;
  Rows<torpor::v1::GarbageRecord> garbage;
  std::map<std::string, scheduler::Amount> allocated;  // what is booked, by worker uid
};

// Every broken rule, in the order of the records. `atespace` limits actors and tags; empty = all.
std::vector<torpor::v1::RecordFinding> CheckRecords(const Records& records, WallTime now,
                                                    const std::string& atespace = "");

}  // namespace torpor::control::core
