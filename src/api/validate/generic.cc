#include <google/protobuf/descriptor.h>
#include <google/protobuf/timestamp.pb.h>
#include <google/protobuf/unknown_field_set.h>

#include <fmt/format.h>

#include "api/validate/parts.h"

namespace torpor::api {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Calls `visit` for each message directly below `message`.
template <typename F>
void ForEachChild(const Field& field, const Message& message, F visit) {
  const Reflection* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> set;
  reflection->ListFields(message, &set);
  for (const FieldDescriptor* f : set) {
    if (f->cpp_type() != FieldDescriptor::CPPTYPE_MESSAGE) continue;
    const Field below = field.At(f->name());
    if (!f->is_repeated()) {
      visit(below, reflection->GetMessage(message, f));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, f); ++i) {
      visit(below.At(i), reflection->GetRepeatedMessage(message, f, i));
    }
  }
}

void CheckEnum(const Field& field, const FieldDescriptor* f, int value) {
  if (f->enum_type()->FindValueByNumber(value) == nullptr) {
    field.Fail(fmt::format("{} is no value of {}", value, f->enum_type()->name()));
  }
}

}  // namespace

void CheckUnknownFields(const Field& field, const Message& message) {
  const auto& unknown = message.GetReflection()->GetUnknownFields(message);
  for (int i = 0; i < unknown.field_count(); ++i) {
    field.FailWith("UNKNOWN_FIELD",
                   fmt::format("has a field number {} that this server does not know",
                               unknown.field(i).number()));
  }
  ForEachChild(field, message, CheckUnknownFields);
}

void CheckValues(const Field& field, const Message& message) {
  if (const auto* time =
          google::protobuf::DynamicCastToGenerated<google::protobuf::Timestamp>(&message)) {
    // google/protobuf/timestamp.proto: years 1 to 9999.
    if (time->seconds() < -62135596800 || time->seconds() > 253402300799 || time->nanos() < 0 ||
        time->nanos() > 999999999) {
      field.Fail("is no valid time");
    }
    return;
  }
  const Reflection* reflection = message.GetReflection();
  std::vector<const FieldDescriptor*> set;
  reflection->ListFields(message, &set);
  for (const FieldDescriptor* f : set) {
    if (f->cpp_type() != FieldDescriptor::CPPTYPE_ENUM) continue;
    const Field below = field.At(f->name());
    if (!f->is_repeated()) {
      CheckEnum(below, f, reflection->GetEnumValue(message, f));
      continue;
    }
    for (int i = 0; i < reflection->FieldSize(message, f); ++i) {
      CheckEnum(below.At(i), f, reflection->GetRepeatedEnumValue(message, f, i));
    }
  }
  ForEachChild(field, message, CheckValues);
}

}  // namespace torpor::api
