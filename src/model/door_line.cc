#include "model/door_line.h"

#include <google/protobuf/util/json_util.h>

#include "base/uuid.h"

namespace torpor {
namespace {

using torpor::v1::DoorLine;

Status Bad(std::string_view why) {
  return Error(Code::kInvalidArgument, "FIELD_INVALID", std::string(why));
}

template <typename Message>
bool NamesActivation(const Message& message) {
  return IsUuid(message.uid()) && message.gen() > 0;
}

}  // namespace

std::string FormatDoorLine(const DoorLine& line) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  std::string out;
  // Only a message with invalid UTF-8 cannot be printed; the reader refuses an empty line.
  (void)google::protobuf::util::MessageToJsonString(line, &out, options).ok();
  out.push_back('\n');
  return out;
}

StatusOr<DoorLine> ParseDoorLine(std::string_view text) {
  if (text.size() > kDoorLineBytesMax) return Bad("the line is too long");
  DoorLine line;
  if (!google::protobuf::util::JsonStringToMessage(std::string(text), &line).ok()) {
    return Bad("not a line of this protocol");
  }
  int said = 0;
  bool good = true;
  auto check = [&](bool set, const auto& message) {
    if (!set) return;
    ++said;
    good = good && NamesActivation(message);
  };
  check(line.has_drain(), line.drain());
  check(line.has_drained(), line.drained());
  check(line.has_busy(), line.busy());
  check(line.has_undrain(), line.undrain());
  check(line.has_gone(), line.gone());
  if (said != 1) return Bad("a line says one thing");
  if (!good) return Bad("no uid or no generation");
  if (line.drain().grace_ms() < 0 || line.busy().inflight() < 0 || line.busy().streams() < 0 ||
      line.busy().oldest_ms() < 0) {
    return Bad("a count is negative");
  }
  return line;
}

}  // namespace torpor
