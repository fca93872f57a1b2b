#pragma once
// Every reason that an error of ours can carry (google.rpc.ErrorInfo.reason), with its code and
// whether a retry makes sense. The list is the contract with clients: names are never changed or
// reused.
//
//   return Fail(reasons::kActorNotFound, "no actor demo/a", {{"actor", "demo/a"}});
//
// Pure and thread-safe.

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace torpor {

struct Reason {
  const char* name;
  Code code;
  int64_t retry_ms = 0;  // RetryInfo of the answer; 0 = a retry does not help
};

// The status of `reason`; RetryInfo is set when the reason has one.
Status Fail(const Reason& reason, std::string_view message, ErrorMetadata metadata = {});

// All of them; a name appears once per code that it can have.
const std::vector<Reason>& AllReasons();
// True for the reasons that ActorCrash.reason can hold.
bool IsCrashReason(std::string_view name);

namespace reasons {

#define TORPOR_REASONS(X)                                                          \
  X(kFieldInvalid, "FIELD_INVALID", kInvalidArgument, 0)                           \
  X(kUnknownField, "UNKNOWN_FIELD", kInvalidArgument, 0)                           \
  X(kFieldImmutable, "FIELD_IMMUTABLE", kInvalidArgument, 0)                       \
  X(kPreconditionMissing, "PRECONDITION_MISSING", kInvalidArgument, 0)             \
  X(kPageTokenInvalid, "PAGE_TOKEN_INVALID", kInvalidArgument, 0)                  \
  X(kRequestIdReused, "REQUEST_ID_REUSED", kInvalidArgument, 0)                    \
  X(kFidelityUnsupported, "FIDELITY_UNSUPPORTED", kInvalidArgument, 0)             \
  X(kUnauthenticated, "UNAUTHENTICATED", kUnauthenticated, 0)                      \
  X(kNotAllowed, "NOT_ALLOWED", kPermissionDenied, 0)                              \
  X(kReservedAtespace, "RESERVED_ATESPACE", kPermissionDenied, 0)                  \
  X(kStoreDenied, "STORE_DENIED", kPermissionDenied, 0)                            \
  X(kSnapshotSignature, "SNAPSHOT_SIGNATURE", kPermissionDenied, 0)                \
  X(kAtespaceNotFound, "ATESPACE_NOT_FOUND", kNotFound, 0)                         \
  X(kTemplateNotFound, "TEMPLATE_NOT_FOUND", kNotFound, 0)                         \
  X(kActorNotFound, "ACTOR_NOT_FOUND", kNotFound, 0)                               \
  X(kTagNotFound, "TAG_NOT_FOUND", kNotFound, 0)                                   \
  X(kWorkerNotFound, "WORKER_NOT_FOUND", kNotFound, 0)                             \
  X(kNodeNotFound, "NODE_NOT_FOUND", kNotFound, 0)                                 \
  X(kGenerationNotFound, "GENERATION_NOT_FOUND", kNotFound, 0)                     \
  X(kPolicyNotFound, "POLICY_NOT_FOUND", kNotFound, 0)                             \
  X(kOperationNotFound, "OPERATION_NOT_FOUND", kNotFound, 0)                       \
  X(kAlreadyExists, "ALREADY_EXISTS", kAlreadyExists, 0)                           \
  X(kWrongState, "WRONG_STATE", kFailedPrecondition, 0)                            \
  X(kActorCrashed, "ACTOR_CRASHED", kFailedPrecondition, 0)                        \
  X(kParentNotFound, "PARENT_NOT_FOUND", kFailedPrecondition, 0)                   \
  X(kTemplateMissing, "TEMPLATE_NOT_FOUND", kFailedPrecondition, 0)                \
  X(kActorMissing, "ACTOR_NOT_FOUND", kFailedPrecondition, 0)                      \
  X(kSandboxConfigNotFound, "SANDBOX_CONFIG_NOT_FOUND", kFailedPrecondition, 0)    \
  X(kAtespaceNotEmpty, "ATESPACE_NOT_EMPTY", kFailedPrecondition, 0)               \
  X(kTemplateInUse, "TEMPLATE_IN_USE", kFailedPrecondition, 0)                     \
  X(kTagInUse, "TAG_IN_USE", kFailedPrecondition, 0)                               \
  X(kTagNotReady, "TAG_NOT_READY", kFailedPrecondition, 0)                         \
  X(kTagNotPublished, "TAG_NOT_PUBLISHED", kFailedPrecondition, 0)                 \
  X(kTagTemplateMismatch, "TAG_TEMPLATE_MISMATCH", kFailedPrecondition, 0)         \
  X(kVolumesNotClonable, "EXTERNAL_VOLUMES_NOT_CLONABLE", kFailedPrecondition, 0)  \
  X(kTemplateIncompatible, "TEMPLATE_CHANGE_INCOMPATIBLE", kFailedPrecondition, 0) \
  X(kNoSnapshot, "NO_SNAPSHOT", kFailedPrecondition, 0)                            \
  X(kSnapshotUnreachable, "SNAPSHOT_UNREACHABLE", kFailedPrecondition, 0)          \
  X(kFallbackRefused, "FALLBACK_REFUSED", kFailedPrecondition, 0)                  \
  X(kGenerationNotDurable, "GENERATION_NOT_DURABLE", kFailedPrecondition, 0)       \
  X(kFidelityNotCaptured, "FIDELITY_NOT_CAPTURED", kFailedPrecondition, 0)         \
  X(kActorBusy, "ACTOR_BUSY", kFailedPrecondition, 0)                              \
  X(kRuntimeIncompatible, "RUNTIME_INCOMPATIBLE", kFailedPrecondition, 0)          \
  X(kSnapshotIdentity, "SNAPSHOT_IDENTITY", kFailedPrecondition, 0)                \
  X(kStaleGeneration, "STALE_GENERATION", kFailedPrecondition, 0)                  \
  X(kStaleLease, "STALE_LEASE", kFailedPrecondition, 0)                            \
  X(kOperationInProgress, "OPERATION_IN_PROGRESS", kAborted, 250)                  \
  X(kVersionConflict, "VERSION_CONFLICT", kAborted, 0)                             \
  X(kUidConflict, "UID_CONFLICT", kAborted, 0)                                     \
  X(kSuperseded, "SUPERSEDED", kAborted, 0)                                        \
  X(kResumeTokenExpired, "RESUME_TOKEN_EXPIRED", kOutOfRange, 0)                   \
  X(kNoCapacity, "NO_CAPACITY", kResourceExhausted, 1000)                          \
  X(kDiskFull, "DISK_FULL", kResourceExhausted, 5000)                              \
  X(kRateLimited, "RATE_LIMITED", kResourceExhausted, 1000)                        \
  X(kTooManyStreams, "TOO_MANY_STREAMS", kResourceExhausted, 1000)                 \
  X(kVolumeBusy, "VOLUME_BUSY", kUnavailable, 1000)                                \
  X(kStoreUnavailable, "STORE_UNAVAILABLE", kUnavailable, 1000)                    \
  X(kNodeUnreachable, "NODE_UNREACHABLE", kUnavailable, 1000)                      \
  X(kObjectStorageUnavailable, "OBJECT_STORAGE_UNAVAILABLE", kUnavailable, 2000)   \
  X(kImageRegistryUnavailable, "IMAGE_REGISTRY_UNAVAILABLE", kUnavailable, 2000)   \
  X(kShuttingDown, "SHUTTING_DOWN", kUnavailable, 1000)                            \
  X(kDeadlineExceeded, "DEADLINE_EXCEEDED", kDeadlineExceeded, 0)                  \
  X(kCancelled, "CANCELLED", kCancelled, 0)                                        \
  X(kSnapshotCorrupt, "SNAPSHOT_CORRUPT", kDataLoss, 0)                            \
  X(kLocalSnapshotGone, "LOCAL_SNAPSHOT_GONE", kDataLoss, 0)                       \
  X(kFailedGetExternalObject, "FAILED_GET_EXTERNAL_OBJECT", kDataLoss, 0)          \
  X(kStoreCorrupt, "STORE_CORRUPT", kDataLoss, 0)                                  \
  X(kNotImplemented, "NOT_IMPLEMENTED", kUnimplemented, 0)                         \
  X(kInternal, "INTERNAL", kInternal, 0)                                           \
  X(kWorkloadExited, "WORKLOAD_EXITED", kInternal, 0)                              \
  X(kWorkloadNotReady, "WORKLOAD_NOT_READY", kInternal, 0)                         \
  X(kOutOfMemory, "OUT_OF_MEMORY", kInternal, 0)                                   \
  X(kRuntimeFailed, "RUNTIME_FAILED", kInternal, 0)                                \
  X(kAgentUnreachable, "AGENT_UNREACHABLE", kInternal, 0)                          \
  X(kNodeLost, "NODE_LOST", kInternal, 0)                                          \
  X(kWorkerRestarted, "WORKER_RESTARTED", kInternal, 0)                            \
  X(kWorkerPodGone, "WORKER_POD_GONE", kInternal, 0)                               \
  X(kWorkerReassigned, "WORKER_REASSIGNED", kInternal, 0)                          \
  X(kCorruptedAssignment, "CORRUPTED_ASSIGNMENT", kInternal, 0)                    \
  X(kInvalidObjectUrl, "INVALID_OBJECT_URL", kInternal, 0)                         \
  X(kInvalidSandboxAsset, "INVALID_SANDBOX_ASSET", kInternal, 0)                   \
  X(kInvalidContainerConfig, "INVALID_CONTAINER_CONFIG", kInternal, 0)             \
  X(kInvalidCheckpointResult, "INVALID_CHECKPOINT_RESULT", kInternal, 0)           \
  X(kFailedSaveSnapshot, "FAILED_SAVE_SNAPSHOT", kInternal, 0)                     \
  X(kTerminalFileSystemError, "TERMINAL_FILE_SYSTEM_ERROR", kInternal, 0)          \
  X(kUnknown, "UNKNOWN", kInternal, 0)

#define TORPOR_DECLARE_REASON(id, name, code, retry) \
  inline constexpr Reason id{name, Code::code, retry};
TORPOR_REASONS(TORPOR_DECLARE_REASON)
#undef TORPOR_DECLARE_REASON

}  // namespace reasons
}  // namespace torpor
