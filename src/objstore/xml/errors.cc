#include "objstore/xml/errors.h"

#include "model/reasons.h"
#include "objstore/http/http_client.h"
#include "objstore/rules.h"

namespace torpor::objstore {
namespace {

struct Remedy {
  std::string_view code;
  const Reason* reason;
  std::string_view remedy;
};

// What the names of S3 and Cloud Storage mean here.
constexpr Remedy kRemedies[] = {
    {"NoSuchBucket", &reasons::kStoreDenied, "create the bucket, or correct the address"},
    {"AccessDenied", &reasons::kStoreDenied,
     "let these credentials read, write, list and delete objects of the bucket"},
    {"InvalidAccessKeyId", &reasons::kStoreDenied,
     "this access key does not exist at this endpoint; correct the credentials or the endpoint"},
    {"InvalidSecurity", &reasons::kStoreDenied,
     "this access key does not exist at this endpoint; correct the credentials or the endpoint"},
    {"SignatureDoesNotMatch", &reasons::kStoreDenied,
     "the secret key does not belong to the access key; correct the credentials"},
    {"RequestTimeTooSkewed", &reasons::kStoreDenied,
     "the clock of this machine is wrong; set it, for example with chrony"},
    {"ExpiredToken", &reasons::kStoreDenied, "the session token has expired; set a new one"},
    {"InvalidToken", &reasons::kStoreDenied, "the session token is not taken; set a new one"},
    {"AuthorizationHeaderMalformed", &reasons::kStoreDenied,
     "set s3-region to the bucket's region"},
    {"PermanentRedirect", &reasons::kStoreDenied,
     "set s3-region to the bucket's region, or s3-endpoint to its endpoint"},
    {"AllAccessDisabled", &reasons::kStoreDenied, "the bucket is closed; ask its owner"},
    {"UserDisabled", &reasons::kStoreDenied, "the account is closed; ask its owner"},
    {"NotImplemented", &reasons::kStoreDenied,
     "the store does not know this request; use one that speaks the whole API"},
    {"QuotaExceeded", &reasons::kDiskFull, "delete snapshots, or raise the quota of the bucket"},
    {"StorageFull", &reasons::kDiskFull, "delete snapshots, or give the store more disks"},
    {"NoSuchUpload", &reasons::kObjectStorageUnavailable,
     "somebody ended this upload; it is sent again"},
};

const Remedy* RemedyFor(std::string_view code) {
  for (const Remedy& remedy : kRemedies) {
    if (remedy.code == code) return &remedy;
  }
  return nullptr;
}

// Foreign text; what is not of the usual form is left out.
bool IsRequestId(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  });
}

Status TransportError(const std::string& what, const Asked& asked, const HttpOutcome& outcome) {
  const std::string said = CurlErrorName(outcome.curl_code);
  if (AdviceFor(outcome) == Advice::kRepeat) {
    return Fail(reasons::kObjectStorageUnavailable,
                fmt::format("{} did not end at {}: {}; check the endpoint and the network", what,
                            asked.endpoint, said));
  }
  return Fail(reasons::kStoreDenied,
              fmt::format("{} cannot be asked of {}: {}; correct the endpoint or its certificate",
                          what, asked.endpoint, said));
}

Status HttpError(const std::string& what, const Asked& asked, const HttpOutcome& outcome,
                 const ErrorAnswer& error, const std::string& answer) {
  if (outcome.status == 404 && (outcome.code.empty() || outcome.code == "NoSuchKey")) {
    return NoSuchObject(std::string(asked.key));
  }
  if (outcome.status == 412 || outcome.code == "PreconditionFailed") {
    return ObjectExists(std::string(asked.key));
  }
  if (IsThrottled(outcome)) {
    return Fail(reasons::kRateLimited,
                fmt::format("{} was put off: {}; the store wants fewer requests", what, answer));
  }
  if (AdviceFor(outcome) == Advice::kRepeat) {
    return Fail(reasons::kObjectStorageUnavailable,
                fmt::format("{} failed: {}; it is tried again later", what, answer));
  }
  const Remedy* remedy = RemedyFor(outcome.code);
  if (remedy == nullptr && (outcome.status == 301 || outcome.status == 307)) {
    remedy = RemedyFor("PermanentRedirect");
  }
  if (remedy == nullptr && outcome.status == 507) remedy = RemedyFor("StorageFull");
  if (remedy == nullptr) remedy = RemedyFor("AccessDenied");
  const std::string region =
      error.region.empty() ? "" : fmt::format(" (the bucket lies in {})", error.region);
  return Fail(*remedy->reason,
              fmt::format("{} was refused: {}{}; {}", what, answer, region, remedy->remedy));
}

}  // namespace

Status StoreError(const Asked& asked, const HttpOutcome& outcome, const ErrorAnswer& error,
                  std::string_view request_id) {
  const std::string what =
      asked.key.empty() ? fmt::format("{} of {}", asked.operation, asked.store)
                        : fmt::format("{} of {} in {}", asked.operation, asked.key, asked.store);
  Status status;
  if (outcome.curl_code != 0) {
    status = TransportError(what, asked, outcome);
  } else {
    std::string answer = fmt::format("HTTP {}", outcome.status);
    if (!outcome.code.empty()) answer = fmt::format("{} ({})", outcome.code, answer);
    status = HttpError(what, asked, outcome, error, answer);
  }
  AddMetadata(status, "storage", asked.store);
  AddMetadata(status, "storage_operation", asked.operation);
  if (IsRequestId(request_id)) AddMetadata(status, "storage_request_id", request_id);
  return status;
}

}  // namespace torpor::objstore
