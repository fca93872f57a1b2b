#include "base/status.h"

#include <cerrno>

#include <gtest/gtest.h>

#include "base/testing/matchers.h"

namespace torpor {
namespace {

TEST(Status, ReasonAndMetadataSurviveTheWire) {
  Status status = Error(Code::kAborted, "OPERATION_IN_PROGRESS", "busy", {{"op_id", "x"}});
  SetRetryAfterMs(status, 250);
  Status back = ParseStatus(SerializeStatus(status), Code::kUnknown, "");
  EXPECT_THAT(back, HasReason(Code::kAborted, "OPERATION_IN_PROGRESS"));
  EXPECT_EQ(MetadataOf(back)["op_id"], "x");
  EXPECT_EQ(RetryAfterMs(back), 250);
  EXPECT_EQ(back.message(), "busy");
}

TEST(Status, AnnotateKeepsPayloads) {
  Status status = Annotate(Error(Code::kNotFound, "ACTOR_NOT_FOUND", "no"), "resume demo/a");
  EXPECT_THAT(status, HasReason(Code::kNotFound, "ACTOR_NOT_FOUND"));
  EXPECT_EQ(status.message(), "resume demo/a: no");
  AddMetadata(status, "actor", "demo/a");
  EXPECT_EQ(MetadataOf(status)["actor"], "demo/a");
  EXPECT_EQ(ReasonOf(status), "ACTOR_NOT_FOUND");
}

TEST(Status, UnreadableWireFormFallsBack) {
  EXPECT_THAT(ParseStatus("\xff\xff", Code::kUnavailable, "lost"), HasCode(Code::kUnavailable));
  EXPECT_THAT(ParseStatus("", Code::kInternal, "empty"), HasCode(Code::kInternal));
}

TEST(Status, InvalidFieldsListsAll) {
  Status status = InvalidFields("FIELD_INVALID", {{"a.b", "too long"}, {"c[0]", "empty"}});
  EXPECT_THAT(status, HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  EXPECT_EQ(status.message(), "a.b: too long; c[0]: empty");
  EXPECT_TRUE(status.GetPayload(kBadRequestUrl).has_value());
}

TEST(Status, ErrnoTable) {
  const std::pair<int, Code> cases[] = {{ENOENT, Code::kNotFound},
                                        {EEXIST, Code::kAlreadyExists},
                                        {ENOSPC, Code::kResourceExhausted},
                                        {EACCES, Code::kPermissionDenied},
                                        {ETIMEDOUT, Code::kDeadlineExceeded},
                                        {ECONNREFUSED, Code::kUnavailable},
                                        {ELOOP, Code::kInvalidArgument},
                                        {EBUSY, Code::kFailedPrecondition},
                                        {EIO, Code::kInternal}};
  for (const auto& [error, code] : cases) EXPECT_THAT(ErrnoStatus(error, "x"), HasCode(code));
  EXPECT_EQ(ReasonOf(ErrnoStatus(ENOSPC, "write a")), "DISK_FULL");
}

Status Chain(StatusOr<int> in, int* out) {
  ASSIGN_OR_RETURN(*out, std::move(in));
  RETURN_IF_ERROR(OkStatus());
  return OkStatus();
}

TEST(Status, Macros) {
  int value = 0;
  EXPECT_OK(Chain(7, &value));
  EXPECT_EQ(value, 7);
  EXPECT_THAT(Chain(Error(Code::kInternal, "INTERNAL", ""), &value), HasCode(Code::kInternal));
}

}  // namespace
}  // namespace torpor
