#pragma once
// Which changes of records a power cut must not undo: what clients have made (resources, tags,
// deletions) and what names objects in storage that outlives the machine. Everything else a node
// that was started anew reports, or it is lost with the machine's memory anyway. Pure.
//
// Null stands for a record that is not there.

#include "torpor/v1/record.pb.h"

namespace torpor::control::core {

bool MustSurvivePowerCut(const torpor::v1::ActorRecord* before,
                         const torpor::v1::ActorRecord* after);
bool MustSurvivePowerCut(const torpor::v1::NodeRecord* before, const torpor::v1::NodeRecord* after);
bool MustSurvivePowerCut(const torpor::v1::WorkerRecord* before,
                         const torpor::v1::WorkerRecord* after);
bool MustSurvivePowerCut(const torpor::v1::GarbageRecord* before,
                         const torpor::v1::GarbageRecord* after);
inline bool MustSurvivePowerCut(const torpor::v1::AtespaceRecord*,
                                const torpor::v1::AtespaceRecord*) {
  return true;
}
inline bool MustSurvivePowerCut(const torpor::v1::TemplateRecord*,
                                const torpor::v1::TemplateRecord*) {
  return true;
}
inline bool MustSurvivePowerCut(const torpor::v1::TagRecord*, const torpor::v1::TagRecord*) {
  return true;
}
// Written with the first generation that names it, so it is there whenever that one is.
inline bool MustSurvivePowerCut(const torpor::v1::CpuRecord*, const torpor::v1::CpuRecord*) {
  return false;
}

}  // namespace torpor::control::core
