#pragma once
// Resources written as YAML documents: the API's JSON shape plus `kind:`.
//
//   kind: Actor
//   metadata: {name: a}
//   actorTemplate: {name: counter}
//
// Pure functions. A missing atespace is filled in from the command's. Errors name file, line, key.

#include <string>
#include <variant>
#include <vector>

#include "ateapi/ateapi.pb.h"
#include "base/status.h"

namespace torpor::cli {

using Resource = std::variant<ateapi::Atespace, ateapi::ActorTemplate, ateapi::Actor, ateapi::Tag>;

// Every document of `text`; `name` stands for the file in errors.
StatusOr<std::vector<Resource>> ParseResources(const std::string& text, const std::string& name,
                                               const std::string& atespace);

}  // namespace torpor::cli
