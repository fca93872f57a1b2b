#include "model/reasons.h"

#include <gtest/gtest.h>

#include <set>

#include "base/testing/matchers.h"

namespace torpor {
namespace {

// The table of the API contract: code, then the reasons that come with it.
const std::map<Code, std::set<std::string>> kContract = {
    {Code::kInvalidArgument,
     {"FIELD_INVALID", "UNKNOWN_FIELD", "FIELD_IMMUTABLE", "PRECONDITION_MISSING",
      "PAGE_TOKEN_INVALID", "REQUEST_ID_REUSED", "FIDELITY_UNSUPPORTED"}},
    {Code::kUnauthenticated, {"UNAUTHENTICATED"}},
    {Code::kPermissionDenied,
     {"NOT_ALLOWED", "RESERVED_ATESPACE", "STORE_DENIED", "SNAPSHOT_SIGNATURE"}},
    {Code::kNotFound,
     {"ATESPACE_NOT_FOUND", "TEMPLATE_NOT_FOUND", "ACTOR_NOT_FOUND", "TAG_NOT_FOUND",
      "WORKER_NOT_FOUND", "NODE_NOT_FOUND", "GENERATION_NOT_FOUND", "POLICY_NOT_FOUND",
      "OPERATION_NOT_FOUND"}},
    {Code::kAlreadyExists, {"ALREADY_EXISTS"}},
    {Code::kFailedPrecondition,
     {"WRONG_STATE",
      "ACTOR_CRASHED",
      "PARENT_NOT_FOUND",
      "TEMPLATE_NOT_FOUND",
      "ACTOR_NOT_FOUND",
      "SANDBOX_CONFIG_NOT_FOUND",
      "ATESPACE_NOT_EMPTY",
      "TEMPLATE_IN_USE",
      "TAG_IN_USE",
      "TAG_NOT_READY",
      "TAG_NOT_PUBLISHED",
      "TAG_TEMPLATE_MISMATCH",
      "EXTERNAL_VOLUMES_NOT_CLONABLE",
      "TEMPLATE_CHANGE_INCOMPATIBLE",
      "NO_SNAPSHOT",
      "SNAPSHOT_UNREACHABLE",
      "FALLBACK_REFUSED",
      "GENERATION_NOT_DURABLE",
      "FIDELITY_NOT_CAPTURED",
      "ACTOR_BUSY",
      "RUNTIME_INCOMPATIBLE",
      "SNAPSHOT_IDENTITY",
      "STALE_GENERATION",
      "STALE_LEASE"}},
    {Code::kAborted, {"OPERATION_IN_PROGRESS", "VERSION_CONFLICT", "UID_CONFLICT", "SUPERSEDED"}},
    {Code::kOutOfRange, {"RESUME_TOKEN_EXPIRED"}},
    {Code::kResourceExhausted, {"NO_CAPACITY", "DISK_FULL", "RATE_LIMITED", "TOO_MANY_STREAMS"}},
    {Code::kUnavailable,
     {"VOLUME_BUSY", "STORE_UNAVAILABLE", "NODE_UNREACHABLE", "OBJECT_STORAGE_UNAVAILABLE",
      "IMAGE_REGISTRY_UNAVAILABLE", "SHUTTING_DOWN"}},
    {Code::kDeadlineExceeded, {"DEADLINE_EXCEEDED"}},
    {Code::kCancelled, {"CANCELLED"}},
    {Code::kDataLoss,
     {"SNAPSHOT_CORRUPT", "LOCAL_SNAPSHOT_GONE", "FAILED_GET_EXTERNAL_OBJECT", "STORE_CORRUPT"}},
    {Code::kUnimplemented, {"NOT_IMPLEMENTED"}},
    {Code::kInternal,
     {"INTERNAL", "WORKLOAD_EXITED", "WORKLOAD_NOT_READY", "OUT_OF_MEMORY", "RUNTIME_FAILED",
      "AGENT_UNREACHABLE", "NODE_LOST", "WORKER_RESTARTED", "WORKER_POD_GONE", "WORKER_REASSIGNED",
      "CORRUPTED_ASSIGNMENT", "INVALID_OBJECT_URL", "INVALID_SANDBOX_ASSET",
      "INVALID_CONTAINER_CONFIG", "INVALID_CHECKPOINT_RESULT", "FAILED_SAVE_SNAPSHOT",
      "TERMINAL_FILE_SYSTEM_ERROR", "UNKNOWN"}},
};

TEST(Reasons, AreExactlyTheContract) {
  std::map<Code, std::set<std::string>> have;
  for (const Reason& reason : AllReasons()) {
    EXPECT_TRUE(have[reason.code].insert(reason.name).second) << reason.name << " twice";
  }
  EXPECT_EQ(have, kContract);
}

TEST(Reasons, RetryHintsOnlyWhereARetryHelps) {
  for (const Reason& reason : AllReasons()) {
    bool helps = reason.code == Code::kResourceExhausted || reason.code == Code::kUnavailable ||
                 std::string_view(reason.name) == "OPERATION_IN_PROGRESS";
    EXPECT_EQ(reason.retry_ms > 0, helps) << reason.name;
  }
}

TEST(Reasons, FailCarriesEverything) {
  Status status = Fail(reasons::kNoCapacity, "2 workers full", {{"limit", "memory"}});
  EXPECT_THAT(status, HasReason(Code::kResourceExhausted, "NO_CAPACITY"));
  EXPECT_EQ(MetadataOf(status)["limit"], "memory");
  EXPECT_EQ(RetryAfterMs(status), 1000);
  EXPECT_EQ(RetryAfterMs(Fail(reasons::kWrongState, "")), std::nullopt);
}

TEST(Reasons, CrashReasons) {
  for (const char* name : {"WORKLOAD_EXITED", "NODE_LOST", "SNAPSHOT_CORRUPT", "UNKNOWN",
                           "LOCAL_SNAPSHOT_GONE", "FAILED_GET_EXTERNAL_OBJECT"}) {
    EXPECT_TRUE(IsCrashReason(name)) << name;
  }
  for (const char* name : {"INTERNAL", "DISK_FULL", "STORE_CORRUPT", ""}) {
    EXPECT_FALSE(IsCrashReason(name)) << name;
  }
}

}  // namespace
}  // namespace torpor
