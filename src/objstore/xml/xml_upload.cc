#include "objstore/xml/xml_upload.h"

#include "base/log.h"
#include "model/reasons.h"
#include "objstore/xml/answers.h"

namespace torpor::objstore {
namespace {

// A store may be silent while it puts gigabytes together.
constexpr Duration kAssemblyMax = std::chrono::minutes(5);
// Nobody waits for an abort, and what it misses is found later.
constexpr Duration kAbortMax = std::chrono::seconds(5);

Status NotUnderstood(const XmlClient& client, const Status& status) {
  return Fail(
      reasons::kObjectStorageUnavailable,
      fmt::format("{}: {}; check the endpoint", client.name(), std::string(status.message())));
}

}  // namespace

StatusOr<std::unique_ptr<XmlUpload>> XmlUpload::Begin(XmlClient* client, const std::string& key,
                                                      int64_t part_bytes) {
  Call call;
  call.operation = "Begin";
  call.method = "POST";
  call.key = key;
  call.query = {{"uploads", ""}};
  const Answer answer = client->Do(call);
  RETURN_IF_ERROR(answer.status);
  auto id = ParseUploadId(answer.http.body);
  if (!id.ok()) return NotUnderstood(*client, id.status());
  return std::unique_ptr<XmlUpload>(new XmlUpload(client, key, std::move(*id), part_bytes));
}

Status XmlUpload::PutPart(int number, std::string_view bytes) {
  RETURN_IF_ERROR(ledger_.Offset(number, bytes.size()).status());
  Call call;
  call.operation = "PutPart";
  call.method = "PUT";
  call.key = key_;
  call.query = {{"partNumber", std::to_string(number)}, {"uploadId", id_}};
  call.headers = {{"content-md5", Md5Base64(bytes)}};
  call.body = bytes;
  const Answer answer = client_->Do(call);
  RETURN_IF_ERROR(answer.status);
  return Arrived(number, bytes.size(), std::string(answer.http.Header("etag")));
}

Status XmlUpload::CopyPart(int number, const std::string& from, ByteRange range) {
  RETURN_IF_ERROR(ledger_.Offset(number, static_cast<size_t>(range.length)).status());
  const std::string prefix = client_->options().dialect->header_prefix;
  Call call;
  call.operation = "Copy";
  call.method = "PUT";
  call.key = key_;
  call.query = {{"partNumber", std::to_string(number)}, {"uploadId", id_}};
  call.headers = {
      {prefix + "copy-source", "/" + client_->options().bucket + "/" + PercentEncode(from, true)},
      {prefix + "copy-source-range",
       fmt::format("bytes={}-{}", range.offset, range.offset + range.length - 1)}};
  call.silence_max = kAssemblyMax;
  const Answer answer = client_->Do(call);
  RETURN_IF_ERROR(answer.status);
  auto etag = ParseCopiedPart(answer.http.body);
  if (!etag.ok()) return NotUnderstood(*client_, etag.status());
  return Arrived(number, static_cast<size_t>(range.length), std::move(*etag));
}

Status XmlUpload::Arrived(int number, size_t bytes, std::string etag) {
  if (!IsEtag(etag)) {
    return NotUnderstood(*client_, Status(Code::kInvalidArgument, "a part has no ETag"));
  }
  {
    MutexLock lock(&mu_);
    etags_[number] = std::move(etag);
  }
  ledger_.Arrived(number, bytes);
  return OkStatus();
}

Status XmlUpload::Complete() {
  ASSIGN_OR_RETURN(int64_t total, ledger_.Total());
  std::string body;
  {
    MutexLock lock(&mu_);
    body = CompleteRequest(etags_);
  }
  Call call;
  call.operation = "Complete";
  call.method = "POST";
  call.key = key_;
  call.query = {{"uploadId", id_}};
  call.headers = {{"content-type", "application/xml"}};
  call.body = body;
  call.silence_max = kAssemblyMax;
  Answer answer = client_->Do(call);
  if (!answer.status.ok() && answer.code == "NoSuchUpload") {
    // A completion whose answer was lost ends the upload as well; then the object is there.
    Call head;
    head.operation = "Head";
    head.method = "HEAD";
    head.key = key_;
    const Answer there = client_->Do(head);
    if (there.status.ok() && there.http.Header("content-length") == std::to_string(total)) {
      answer.status = OkStatus();
    }
  }
  RETURN_IF_ERROR(answer.status);
  MutexLock lock(&mu_);
  ended_ = true;
  return OkStatus();
}

void XmlUpload::Abort() {
  ledger_.Close();
  {
    MutexLock lock(&mu_);
    if (ended_) return;
    ended_ = true;
  }
  const Status status = AbortUpload(client_, key_, id_);
  if (!status.ok()) {
    LogWarning("the parts of an upload that was given up stay until the next sweep",
               {{"object", key_}, {"error", std::string(status.message())}});
  }
}

Status AbortUpload(XmlClient* client, const std::string& key, const std::string& id) {
  Call call;
  call.operation = "Abort";
  call.method = "DELETE";
  call.key = key;
  call.query = {{"uploadId", id}};
  call.give_up_after = kAbortMax;
  const Answer answer = client->Do(call);
  const bool gone = answer.http.curl_code == 0 && answer.http.status == 404;
  return gone ? OkStatus() : answer.status;
}

}  // namespace torpor::objstore
