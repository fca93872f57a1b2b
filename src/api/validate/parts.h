#pragma once
// The parts of Validate, one per file; see validate.h.

#include <google/protobuf/message.h>

#include "api/validate/field.h"
#include "ateapi/ateapi.pb.h"

namespace torpor::api {

// Fields that we do not know, at any depth.
void CheckUnknownFields(const Field& field, const google::protobuf::Message& message);
// Enum values outside their list, and times outside theirs, at any depth.
void CheckValues(const Field& field, const google::protobuf::Message& message);

void CheckTemplate(const Field& field, const ateapi::ActorTemplate& actor_template);
void CheckContainers(const Field& field, const ateapi::ActorTemplate& actor_template);
void CheckVolumes(const Field& field, const ateapi::ActorTemplate& actor_template);
void CheckResources(const Field& field, const ateapi::Resources& resources);
void CheckPolicies(const Field& field, const torpor::v1::IdlePolicy& idle,
                   const torpor::v1::CrashPolicy& crash);
// The first part of the template that a later version will serve, empty if there is none.
std::string NotServedYet(const ateapi::ActorTemplate& actor_template);

void CheckActor(const Field& field, const ateapi::Actor& actor, bool update);

}  // namespace torpor::api
