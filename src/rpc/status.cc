#include "rpc/status.h"

#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"
#include "rpc/reason.h"

namespace torpor::rpc {
namespace {

constexpr size_t kMessageBytesMax = 1024;
constexpr size_t kDetailsBytesMax = 5 * 1024;

// At most `max` bytes, cut at a character boundary.
std::string Cut(std::string text, size_t max) {
  if (text.size() <= max) return text;
  size_t end = max - 3;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xC0) == 0x80) --end;
  text.resize(end);
  return text + "...";
}

// Drops violations from the end until `details` fits. What is left over then is metadata of our
// own, which is small.
void Shrink(google::rpc::Status* details) {
  for (google::protobuf::Any& any : *details->mutable_details()) {
    google::rpc::BadRequest bad;
    if (any.type_url() != kBadRequestUrl || !bad.ParseFromString(any.value())) continue;
    while (details->ByteSizeLong() > kDetailsBytesMax && bad.field_violations_size() > 0) {
      bad.mutable_field_violations()->RemoveLast();
      any.set_value(bad.SerializeAsString());
    }
  }
}

}  // namespace

grpc::Status ToGrpc(const Status& status) {
  if (status.ok()) return grpc::Status::OK;
  google::rpc::Status details;
  details.ParseFromString(SerializeStatus(WithReason(status)));
  details.set_message(Cut(details.message(), kMessageBytesMax));
  Shrink(&details);
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(),
                      details.SerializeAsString());
}

Status FromGrpc(const grpc::Status& status) {
  if (status.ok()) return OkStatus();
  return ParseStatus(status.error_details(), static_cast<Code>(status.error_code()),
                     status.error_message());
}

}  // namespace torpor::rpc
