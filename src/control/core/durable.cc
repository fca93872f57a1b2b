#include "control/core/durable.h"

#include <string>

#include "control/core/record_view.h"

namespace torpor::control::core {
namespace {

// What the owner has asked for, without what changes by itself.
std::string Wanted(const torpor::v1::ActorRecord& record) {
  ateapi::Actor actor = record.actor();
  actor.clear_status();
  actor.mutable_metadata()->clear_version();
  actor.mutable_metadata()->clear_update_time();
  return actor.SerializeAsString();
}

// The durable storages with their addresses, those in progress included: their address has to be
// known before the first byte is there.
std::string Objects(const torpor::v1::ActorRecord& record) {
  std::string out = record.borrowed().SerializeAsString();
  for (const torpor::v1::GenerationRecord& generation : record.generations()) {
    const auto* durable = FindStorage(generation, torpor::v1::DURABILITY_DURABLE);
    if (durable == nullptr) continue;
    out += fmt::format("|{} {} {} {}", generation.generation().generation(), durable->uri(),
                       static_cast<int>(durable->status()), generation.manifest_sha256());
  }
  return out;
}

bool IsDeleting(const torpor::v1::ActorRecord& record) {
  return record.actor().status().state() == ateapi::ACTOR_STATE_DELETING;
}

}  // namespace

bool MustSurvivePowerCut(const torpor::v1::ActorRecord* before,
                         const torpor::v1::ActorRecord* after) {
  if (before == nullptr || after == nullptr) return true;
  return IsDeleting(*before) != IsDeleting(*after) || Objects(*before) != Objects(*after) ||
         Wanted(*before) != Wanted(*after);
}

bool MustSurvivePowerCut(const torpor::v1::NodeRecord* before,
                         const torpor::v1::NodeRecord* after) {
  if (before == nullptr || after == nullptr) return true;
  return before->drain() != after->drain();
}

// Workers register again; that one is not to be used any more is an operator's word.
bool MustSurvivePowerCut(const torpor::v1::WorkerRecord* before,
                         const torpor::v1::WorkerRecord* after) {
  auto draining = [](const torpor::v1::WorkerRecord* record) {
    return record != nullptr && record->worker().status().state() == ateapi::WORKER_STATE_DRAINING;
  };
  return draining(before) != draining(after);
}

// Objects in storage; local snapshots that nobody names a node finds by itself.
bool MustSurvivePowerCut(const torpor::v1::GarbageRecord* before,
                         const torpor::v1::GarbageRecord* after) {
  return before == nullptr && after != nullptr && !after->uri().empty();
}

}  // namespace torpor::control::core
