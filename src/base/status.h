#pragma once
// Errors of every call in the program: absl::Status with one google.rpc.ErrorInfo as payload.
//
// Status says that a call failed; how a sandbox ended is an ExitReport. The reason is one of
// model/reasons.h; the message says what to do next. Values are thread-compatible; move them
// between threads instead of copying.

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include <absl/status/status.h>
#include <absl/status/statusor.h>

namespace torpor {

using Status = absl::Status;
template <typename T>
using StatusOr = absl::StatusOr<T>;
using Code = absl::StatusCode;
using ErrorMetadata = std::map<std::string, std::string>;

inline Status OkStatus() { return absl::OkStatus(); }

// An error with a machine-readable reason (UPPER_SNAKE) and metadata such as {"actor", "demo/a"}.
Status Error(Code code, std::string_view reason, std::string_view message,
             ErrorMetadata metadata = {});

// The reason of `status`, empty when it is OK or carries none.
std::string ReasonOf(const Status& status);
ErrorMetadata MetadataOf(const Status& status);
// Adds or replaces one metadata entry; `status` must not be OK.
void AddMetadata(Status& status, std::string_view key, std::string_view value);
// The same status with `context: ` in front of its message; payloads are kept.
Status Annotate(const Status& status, std::string_view context);

// How long the caller should wait before it tries again, in milliseconds (google.rpc.RetryInfo).
void SetRetryAfterMs(Status& status, int64_t ms);
std::optional<int64_t> RetryAfterMs(const Status& status);

// One violation of an INVALID_ARGUMENT (google.rpc.BadRequest), e.g. {"actor.metadata.name",
// "..."}.
struct FieldViolation {
  std::string field;
  std::string description;
};
// INVALID_ARGUMENT with all violations; `violations` must not be empty.
Status InvalidFields(std::string_view reason, const std::vector<FieldViolation>& violations);

// An errno as a Status: code by table, reason INTERNAL unless the table knows better (ENOSPC ->
// DISK_FULL). `what` names the call and the object, e.g. "openat actors/x".
Status ErrnoStatus(int error, std::string_view what);

// The wire form of a status is google.rpc.Status; both directions keep every payload.
std::string SerializeStatus(const Status& status);  // bytes of google.rpc.Status
Status ParseStatus(std::string_view serialized, Code fallback, std::string_view fallback_message);

// Type URLs under which the payloads are kept.
inline constexpr char kErrorInfoUrl[] = "type.googleapis.com/google.rpc.ErrorInfo";
inline constexpr char kRetryInfoUrl[] = "type.googleapis.com/google.rpc.RetryInfo";
inline constexpr char kBadRequestUrl[] = "type.googleapis.com/google.rpc.BadRequest";
inline constexpr char kErrorDomain[] = "torpor.dev";

}  // namespace torpor

#define TORPOR_CONCAT_INNER(a, b) a##b
#define TORPOR_CONCAT(a, b) TORPOR_CONCAT_INNER(a, b)

#define RETURN_IF_ERROR(expr)                        \
  do {                                               \
    ::torpor::Status torpor_status_ = (expr);        \
    if (!torpor_status_.ok()) return torpor_status_; \
  } while (false)

#define ASSIGN_OR_RETURN(lhs, expr) \
  ASSIGN_OR_RETURN_IMPL(TORPOR_CONCAT(torpor_or_, __LINE__), lhs, expr)
#define ASSIGN_OR_RETURN_IMPL(tmp, lhs, expr)    \
  auto tmp = (expr);                             \
  if (!tmp.ok()) return std::move(tmp).status(); \
  lhs = std::move(tmp).value()
