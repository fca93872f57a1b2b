#include "rpc/reason.h"

namespace torpor::rpc {
namespace {

std::string_view ImpliedReason(Code code) {
  switch (code) {
    case Code::kInvalidArgument:
      return "FIELD_INVALID";
    case Code::kUnauthenticated:
      return "UNAUTHENTICATED";
    case Code::kPermissionDenied:
      return "NOT_ALLOWED";
    case Code::kAlreadyExists:
      return "ALREADY_EXISTS";
    case Code::kDeadlineExceeded:
      return "DEADLINE_EXCEEDED";
    case Code::kCancelled:
      return "CANCELLED";
    case Code::kUnimplemented:
      return "NOT_IMPLEMENTED";
    default:
      return "INTERNAL";
  }
}

// By its first byte; 0 = it cannot begin a character.
size_t SequenceLength(unsigned char lead) {
  if (lead < 0x80) return 1;
  if (lead < 0xC2) return 0;
  if (lead < 0xE0) return 2;
  if (lead < 0xF0) return 3;
  return lead < 0xF5 ? 4 : 0;
}

// `text` with '?' for every byte that is not part of valid UTF-8: protobuf, which carries messages,
// takes nothing else, and paths and program output can hold anything.
std::string ValidUtf8(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    size_t length = SequenceLength(lead);
    bool valid = length > 0 && i + length <= text.size();
    for (size_t k = 1; valid && k < length; ++k) {
      valid = (static_cast<unsigned char>(text[i + k]) & 0xC0) == 0x80;
    }
    if (valid && length > 2) {  // overlong forms, surrogates, beyond U+10FFFF
      const auto second = static_cast<unsigned char>(text[i + 1]);
      valid = !(lead == 0xE0 && second < 0xA0) && !(lead == 0xED && second > 0x9F) &&
              !(lead == 0xF0 && second < 0x90) && !(lead == 0xF4 && second > 0x8F);
    }
    if (!valid) length = 1;
    out += valid ? text.substr(i, length) : "?";
    i += length;
  }
  return out;
}

}  // namespace

Status WithReason(const Status& status) {
  if (status.ok()) return status;
  const std::string message =
      ValidUtf8(std::string_view(status.message().data(), status.message().size()));
  const bool reason = !ReasonOf(status).empty();
  if (reason && message == std::string(status.message())) return status;
  Status out = Error(status.code(), ImpliedReason(status.code()), message);
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    if (reason || url != kErrorInfoUrl) out.SetPayload(url, payload);
  });
  return out;
}

}  // namespace torpor::rpc
