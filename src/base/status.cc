#include "base/status.h"

#include <cerrno>
#include <cstring>

#include <fmt/format.h>

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace torpor {
namespace {

template <typename Message>
std::optional<Message> Payload(const Status& status, const char* url) {
  auto cord = status.GetPayload(url);
  if (!cord.has_value()) return std::nullopt;
  Message message;
  if (!message.ParseFromString(std::string(*cord))) return std::nullopt;
  return message;
}

void SetPayload(Status& status, const char* url, const google::protobuf::Message& message) {
  status.SetPayload(url, absl::Cord(message.SerializeAsString()));
}

absl::string_view View(std::string_view s) { return {s.data(), s.size()}; }

}  // namespace

Status Error(Code code, std::string_view reason, std::string_view message, ErrorMetadata metadata) {
  Status status(code, View(message));
  google::rpc::ErrorInfo info;
  info.set_reason(std::string(reason));
  info.set_domain(kErrorDomain);
  for (auto& [key, value] : metadata) (*info.mutable_metadata())[key] = value;
  SetPayload(status, kErrorInfoUrl, info);
  return status;
}

std::string ReasonOf(const Status& status) {
  auto info = Payload<google::rpc::ErrorInfo>(status, kErrorInfoUrl);
  return info ? info->reason() : std::string();
}

ErrorMetadata MetadataOf(const Status& status) {
  ErrorMetadata out;
  if (auto info = Payload<google::rpc::ErrorInfo>(status, kErrorInfoUrl)) {
    for (const auto& [key, value] : info->metadata()) out[key] = value;
  }
  return out;
}

void AddMetadata(Status& status, std::string_view key, std::string_view value) {
  auto info = Payload<google::rpc::ErrorInfo>(status, kErrorInfoUrl);
  if (!info) {
    info.emplace();
    info->set_reason("INTERNAL");
    info->set_domain(kErrorDomain);
  }
  (*info->mutable_metadata())[std::string(key)] = std::string(value);
  SetPayload(status, kErrorInfoUrl, *info);
}

Status Annotate(const Status& status, std::string_view context) {
  if (status.ok()) return status;
  Status out(status.code(), View(fmt::format("{}: {}", context, std::string(status.message()))));
  status.ForEachPayload(
      [&](absl::string_view url, const absl::Cord& payload) { out.SetPayload(url, payload); });
  return out;
}

void SetRetryAfterMs(Status& status, int64_t ms) {
  google::rpc::RetryInfo info;
  info.mutable_retry_delay()->set_seconds(ms / 1000);
  info.mutable_retry_delay()->set_nanos(static_cast<int32_t>(ms % 1000) * 1000000);
  SetPayload(status, kRetryInfoUrl, info);
}

std::optional<int64_t> RetryAfterMs(const Status& status) {
  auto info = Payload<google::rpc::RetryInfo>(status, kRetryInfoUrl);
  if (!info) return std::nullopt;
  return info->retry_delay().seconds() * 1000 + info->retry_delay().nanos() / 1000000;
}

Status InvalidFields(std::string_view reason, const std::vector<FieldViolation>& violations) {
  std::string message;
  google::rpc::BadRequest bad;
  for (const FieldViolation& v : violations) {
    if (!message.empty()) message += "; ";
    message += fmt::format("{}: {}", v.field, v.description);
    auto* out = bad.add_field_violations();
    out->set_field(v.field);
    out->set_description(v.description);
  }
  Status status = Error(Code::kInvalidArgument, reason, message);
  SetPayload(status, kBadRequestUrl, bad);
  return status;
}

Status ErrnoStatus(int error, std::string_view what) {
  std::string message = fmt::format("{}: {}", what, strerror(error));
  switch (error) {
    case ENOENT:
      return Error(Code::kNotFound, "INTERNAL", message);
    case EEXIST:
      return Error(Code::kAlreadyExists, "ALREADY_EXISTS", message);
    case ENOSPC:
    case EDQUOT:
      return Error(Code::kResourceExhausted, "DISK_FULL", message + "; free space on that disk");
    case EACCES:
    case EPERM:
      return Error(Code::kPermissionDenied, "INTERNAL", message);
    case ETIMEDOUT:
      return Error(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED", message);
    case EAGAIN:
    case ECONNREFUSED:
    case ECONNRESET:
    case EPIPE:
      return Error(Code::kUnavailable, "INTERNAL", message);
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
    case EXDEV:
      return Error(Code::kInvalidArgument, "FIELD_INVALID", message);
    case EBUSY:
    case ENOTEMPTY:
      return Error(Code::kFailedPrecondition, "INTERNAL", message);
    default:
      return Error(Code::kInternal, "INTERNAL", message);
  }
}

std::string SerializeStatus(const Status& status) {
  google::rpc::Status out;
  out.set_code(static_cast<int>(status.code()));
  out.set_message(std::string(status.message()));
  status.ForEachPayload([&](absl::string_view url, const absl::Cord& payload) {
    auto* any = out.add_details();
    any->set_type_url(std::string(url));
    any->set_value(std::string(payload));
  });
  return out.SerializeAsString();
}

Status ParseStatus(std::string_view serialized, Code fallback, std::string_view fallback_message) {
  google::rpc::Status in;
  if (serialized.empty() ||
      !in.ParseFromArray(serialized.data(), static_cast<int>(serialized.size()))) {
    return Status(fallback, View(fallback_message));
  }
  Status out(static_cast<Code>(in.code()), in.message());
  if (out.ok()) return out;
  for (const auto& any : in.details()) out.SetPayload(any.type_url(), absl::Cord(any.value()));
  return out;
}

}  // namespace torpor
