#pragma once
// The JSON of the public API: proto3 JSON for messages, the Connect form for errors. Pure
// functions, any thread.

#include <memory>
#include <string>
#include <string_view>

#include <google/protobuf/message.h>

#include "base/status.h"

namespace torpor::api {

// Fills `message`; an empty body is `{}`. INVALID_ARGUMENT UNKNOWN_FIELD names an unknown key,
// FIELD_INVALID the field of a value that does not fit. At most 64 levels of nesting.
Status ParseJson(std::string_view body, google::protobuf::Message* message);

// On one line: lowerCamelCase, enum names, 64-bit integers as strings, unset fields omitted.
StatusOr<std::string> PrintJson(const google::protobuf::Message& message);

// {"code", "message", "details": [{"type", "value", "debug"}]}
std::string ErrorJson(const Status& status);

// The HTTP status of an RPC error.
int HttpStatus(Code code);

}  // namespace torpor::api
