#pragma once
// Requests that pass every check, for tests to spoil.

#include <string>
#include <vector>

#include "ateapi/ateapi.pb.h"
#include "base/status.h"

namespace torpor::api::testing_requests {

ateapi::ActorTemplate Template();
ateapi::Actor Actor();
// The paths of the BadRequest of `status`, in order; empty when there is none.
std::vector<std::string> ViolatedFields(const Status& status);

}  // namespace torpor::api::testing_requests
