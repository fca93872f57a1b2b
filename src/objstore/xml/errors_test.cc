#include "objstore/xml/errors.h"

#include "base/testing/matchers.h"

namespace torpor::objstore {
namespace {

TEST(StoreErrorTest, EveryKindOfAnswer) {
  struct Case {
    int curl;
    int status;
    const char* code;
    Code want;
    const char* reason;
    const char* text;
  };
  for (const Case& c : {
           Case{0, 404, "", Code::kNotFound, "GENERATION_NOT_FOUND", "a/b does not exist"},
           Case{0, 404, "NoSuchKey", Code::kNotFound, "GENERATION_NOT_FOUND", "a/b"},
           Case{0, 404, "NoSuchBucket", Code::kPermissionDenied, "STORE_DENIED",
                "create the bucket"},
           Case{0, 404, "NoSuchUpload", Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE", "ended"},
           Case{0, 412, "PreconditionFailed", Code::kFailedPrecondition, "WRONG_STATE", "exists"},
           Case{0, 403, "AccessDenied", Code::kPermissionDenied, "STORE_DENIED", "let these"},
           Case{0, 403, "", Code::kPermissionDenied, "STORE_DENIED", "HTTP 403"},
           Case{0, 403, "SignatureDoesNotMatch", Code::kPermissionDenied, "STORE_DENIED",
                "secret key"},
           Case{0, 403, "InvalidAccessKeyId", Code::kPermissionDenied, "STORE_DENIED",
                "access key"},
           Case{0, 403, "RequestTimeTooSkewed", Code::kPermissionDenied, "STORE_DENIED", "clock"},
           Case{0, 400, "ExpiredToken", Code::kPermissionDenied, "STORE_DENIED", "expired"},
           Case{0, 401, "", Code::kPermissionDenied, "STORE_DENIED", "HTTP 401"},
           Case{0, 400, "AuthorizationHeaderMalformed", Code::kPermissionDenied, "STORE_DENIED",
                "lies in eu-west-1); set s3-region"},
           Case{0, 301, "", Code::kPermissionDenied, "STORE_DENIED", "s3-region"},
           Case{0, 400, "InvalidRequest", Code::kPermissionDenied, "STORE_DENIED",
                "InvalidRequest"},
           Case{0, 429, "", Code::kResourceExhausted, "RATE_LIMITED", "fewer requests"},
           Case{0, 503, "SlowDown", Code::kResourceExhausted, "RATE_LIMITED", "fewer requests"},
           Case{0, 403, "QuotaExceeded", Code::kResourceExhausted, "DISK_FULL", "quota"},
           Case{0, 507, "", Code::kResourceExhausted, "DISK_FULL", "disks"},
           Case{0, 500, "InternalError", Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE", "again"},
           Case{0, 200, "InternalError", Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE", "again"},
           Case{7, 0, "", Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE", "s3.example:9000"},
           Case{28, 200, "", Code::kUnavailable, "OBJECT_STORAGE_UNAVAILABLE", "network"},
           Case{60, 0, "", Code::kPermissionDenied, "STORE_DENIED", "certificate"},
       }) {
    const ErrorAnswer error{c.code, "eu-west-1"};
    const Status status = StoreError({"s3://bucket", "Put", "a/b", "s3.example:9000"},
                                     {c.curl, c.status, c.code}, error, "req-1");
    EXPECT_THAT(status, HasReason(c.want, c.reason)) << c.code << c.status;
    EXPECT_THAT(status, MessageHas(c.text)) << c.code << c.status;
    EXPECT_EQ(MetadataOf(status)["storage"], "s3://bucket");
    EXPECT_EQ(MetadataOf(status)["storage_operation"], "Put");
    EXPECT_EQ(MetadataOf(status)["storage_request_id"], "req-1");
  }
}

TEST(StoreErrorTest, WhatIsNoRequestIdIsLeftOut) {
  const Status status = StoreError({"s3://bucket", "Put", "a", "h"}, {0, 500, ""}, {}, "a b\n<x>");
  EXPECT_EQ(MetadataOf(status).count("storage_request_id"), 0u);
}

}  // namespace
}  // namespace torpor::objstore
