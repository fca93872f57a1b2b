#pragma once
// The syntax of public requests: what can be said about a request without looking at any state.
//
// Bounds and formats are those of the comments in proto/ateapi/ateapi.proto; existence, states and
// preconditions are checked by the control plane. Pure functions, any thread.

#include <google/protobuf/message.h>

#include "ateapi/ateapi.pb.h"
#include "base/status.h"

namespace torpor::api {

// INVALID_ARGUMENT with every violation of `request` (a BadRequest with paths such as
// `actor_template.containers[0].image`); the reason is UNKNOWN_FIELD before FIELD_INVALID before
// the others. UNIMPLEMENTED NOT_IMPLEMENTED for a valid request that needs what is not built yet.
Status Validate(const google::protobuf::Message& request);

// Writes the defaults into a new template, so that they show when it is read: limits of 512Mi and 1
// cpu, port 80, probe path and timeout, what a snapshot holds. Drops what the server sets.
void ApplyDefaults(ateapi::ActorTemplate* actor_template);

}  // namespace torpor::api
