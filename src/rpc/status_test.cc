#include "rpc/status.h"

#include <gtest/gtest.h>

#include "base/testing/matchers.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace torpor::rpc {
namespace {

TEST(StatusTest, RoundTripKeepsEveryDetail) {
  Status in = Error(Code::kFailedPrecondition, "WRONG_STATE", "resume it first", {{"state", "X"}});
  SetRetryAfterMs(in, 1500);
  Status out = FromGrpc(ToGrpc(in));
  EXPECT_EQ(out, in);
  EXPECT_TRUE(FromGrpc(ToGrpc(OkStatus())).ok());
}

TEST(StatusTest, AnErrorWithoutReasonGetsOne) {
  EXPECT_THAT(FromGrpc(ToGrpc(absl::InternalError("boom"))),
              HasReason(Code::kInternal, "INTERNAL"));
  EXPECT_THAT(FromGrpc(ToGrpc(absl::DeadlineExceededError("late"))),
              HasReason(Code::kDeadlineExceeded, "DEADLINE_EXCEEDED"));
  EXPECT_THAT(FromGrpc(ToGrpc(absl::UnimplementedError("no"))),
              HasReason(Code::kUnimplemented, "NOT_IMPLEMENTED"));
}

TEST(StatusTest, AMessageThatIsNoUtf8KeepsItsReason) {
  struct Case {
    const char* in;
    const char* out;
  };
  for (const Case& c : {Case{"a\xff"
                             "b",
                             "a?b"},
                        Case{"\xc3\xa4", "\xc3\xa4"},
                        Case{"\xe2\x82\xac\xf0\x9f\x98\x80", "\xe2\x82\xac\xf0\x9f\x98\x80"},
                        Case{"\xc3", "?"}, Case{"\xc0\x80", "??"}, Case{"\xed\xa0\x80", "???"},
                        Case{"\xf4\x90\x80\x80", "????"}, Case{"\xe2\x82", "??"}}) {
    Status out = FromGrpc(ToGrpc(Error(Code::kUnavailable, "DISK_FULL", c.in)));
    EXPECT_THAT(out, HasReason(Code::kUnavailable, "DISK_FULL"));
    EXPECT_EQ(std::string(out.message()), c.out);
  }
}

TEST(StatusTest, ErrorsMadeByGrpcHaveNoReason) {
  Status out = FromGrpc(grpc::Status(grpc::StatusCode::UNAVAILABLE, "no connection"));
  EXPECT_THAT(out, HasReason(Code::kUnavailable, ""));
  EXPECT_THAT(out, MessageHas("no connection"));
}

TEST(StatusTest, ManyViolationsAreCutToTheMetadataLimit) {
  std::vector<FieldViolation> violations;
  for (int i = 0; i < 1000; ++i) {
    violations.push_back(
        {"actor_template.containers[" + std::to_string(i) + "].image", "\u00fcber"});
  }
  grpc::Status out = ToGrpc(InvalidFields("FIELD_INVALID", violations));
  EXPECT_LE(out.error_message().size(), 1024u);
  EXPECT_LE(out.error_details().size(), 5 * 1024u);
  EXPECT_THAT(FromGrpc(out), HasReason(Code::kInvalidArgument, "FIELD_INVALID"));
  google::rpc::Status details;
  ASSERT_TRUE(details.ParseFromString(out.error_details()));
  google::rpc::BadRequest bad;
  for (const auto& any : details.details()) {
    if (any.type_url() == kBadRequestUrl) {
      ASSERT_TRUE(bad.ParseFromString(any.value()));
    }
  }
  EXPECT_GT(bad.field_violations_size(), 30);
  EXPECT_EQ(bad.field_violations(0).field(), violations[0].field);
}

}  // namespace
}  // namespace torpor::rpc
