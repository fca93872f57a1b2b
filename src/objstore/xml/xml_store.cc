#include "objstore/xml/xml_store.h"

#include <charconv>

#include "model/reasons.h"
#include "objstore/credentials/token_endpoint.h"
#include "objstore/rules.h"
#include "objstore/xml/answers.h"
#include "objstore/xml/xml_upload.h"

namespace torpor::objstore {
namespace {

constexpr Duration kCopyMax = std::chrono::minutes(5);  // how long a store may be silent
constexpr int64_t kCopyPartBytes = int64_t{1} << 30;

StatusOr<int64_t> ParseBytes(std::string_view text) {
  int64_t bytes = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || bytes < 0) {
    return Fail(reasons::kObjectStorageUnavailable,
                "the store did not say how large the object is; check the endpoint");
  }
  return bytes;
}

// One Get over all its tries: what came already is not asked for again.
struct Reading {
  int64_t offset = 0;   // asked for by the caller
  int64_t length = -1;  // the same; -1 = to the end
  int64_t received = 0;
  int64_t total = -1;  // of the object, once known
  std::string etag;    // of the object, once known

  bool whole_object() const { return offset == 0 && length < 0 && received == 0; }
  int64_t end() const { return length < 0 || total - offset < length ? total : offset + length; }
  bool done() const { return total >= 0 && offset + received >= end(); }

  void AddHeaders(Headers* headers) const {
    if (!whole_object()) {
      const std::string last = length < 0 ? "" : std::to_string(offset + length - 1);
      headers->emplace_back("range", fmt::format("bytes={}-{}", offset + received, last));
    }
    if (!etag.empty()) headers->emplace_back("if-match", etag);
  }

  // From the head of an answer; an error when it answers something else.
  Status Learn(const HttpResponse& head) {
    int64_t begin = 0;
    std::string_view size = head.Header("content-length");
    if (head.status == 206) {  // "bytes 5-9/100"
      const std::string_view range = head.Header("content-range");
      const size_t slash = range.find('/');
      size = slash == std::string_view::npos ? "" : range.substr(slash + 1);
      begin = -1;
      if (range.rfind("bytes ", 0) == 0) {
        std::from_chars(range.data() + 6, range.data() + range.size(), begin);
      }
    }
    ASSIGN_OR_RETURN(total, ParseBytes(size));
    if (begin != offset + received) {
      return Fail(reasons::kObjectStorageUnavailable,
                  "the store sent other bytes than were asked for; check the endpoint");
    }
    etag = head.Header("etag");
    return OkStatus();
  }
};

}  // namespace

XmlStore::XmlStore(std::unique_ptr<XmlClient> client, std::shared_ptr<void> resources,
                   int64_t copy_bytes_max)
    : resources_(std::move(resources)),
      client_(std::move(client)),
      copy_bytes_max_(copy_bytes_max > 0 ? copy_bytes_max
                                         : client_->options().dialect->copy_bytes_max) {}

StatusOr<ObjectInfo> XmlStore::Head(const std::string& key) {
  RETURN_IF_ERROR(CheckKey(key));
  Call call;
  call.operation = "Head";
  call.method = "HEAD";
  call.key = key;
  const Answer answer = client_->Do(call);
  RETURN_IF_ERROR(answer.status);
  ASSIGN_OR_RETURN(int64_t bytes, ParseBytes(answer.http.Header("content-length")));
  return ObjectInfo{key, bytes};
}

StatusOr<ObjectInfo> XmlStore::Get(const std::string& key, ByteRange range, const Sink& sink) {
  RETURN_IF_ERROR(CheckKey(key));
  Reading reading{range.offset, range.length};
  // No range of HTTP is empty, and one behind the end is told from one at the end by the size.
  auto by_size = [&]() -> StatusOr<ObjectInfo> {
    ASSIGN_OR_RETURN(ObjectInfo info, Head(key));
    RETURN_IF_ERROR(CutRange(key, range, info.bytes).status());
    return info;
  };
  if (range.offset < 0 || range.length < -1 || range.length == 0) return by_size();

  bool first_piece = true;
  const HttpSink take = [&](const HttpResponse& head, std::string_view piece) -> Status {
    if (first_piece) RETURN_IF_ERROR(reading.Learn(head));
    first_piece = false;
    if (reading.offset + reading.received + static_cast<int64_t>(piece.size()) > reading.end()) {
      return Fail(reasons::kObjectStorageUnavailable,
                  "the store sent more bytes than were asked for; check the endpoint");
    }
    reading.received += static_cast<int64_t>(piece.size());
    return sink(piece);
  };
  Call call;
  call.operation = "Get";
  call.method = "GET";
  call.key = key;
  call.sink = &take;
  call.add_headers = [&](Headers* headers) {
    first_piece = true;
    reading.AddHeaders(headers);
  };
  call.is_whole = [&] { return reading.total < 0 || reading.done(); };
  Answer answer;
  int64_t before = -1;
  do {  // a long one may break off more often, as long as it gets on
    before = reading.received;
    answer = client_->Do(call);
  } while (answer.status.code() == Code::kUnavailable && answer.http.curl_code != 0 &&
           reading.received > before);
  if (answer.http.curl_code == 0 && answer.http.status == 416 && reading.received == 0) {
    return by_size();
  }
  if (answer.http.curl_code == 0 && answer.http.status == 412) {
    return Fail(reasons::kObjectStorageUnavailable,
                fmt::format("{} changed while it was read", key));
  }
  RETURN_IF_ERROR(answer.status);
  if (reading.total < 0) RETURN_IF_ERROR(reading.Learn(answer.http));  // no byte came
  if (!reading.done()) {
    return Fail(reasons::kObjectStorageUnavailable,
                fmt::format("the store sent no byte of {}; check the endpoint", key));
  }
  return ObjectInfo{key, reading.total};
}

Status XmlStore::Put(const std::string& key, std::string_view bytes, const PutOptions& options) {
  RETURN_IF_ERROR(CheckKey(key));
  const Dialect& dialect = *client_->options().dialect;
  Call call;
  call.operation = "Put";
  call.method = "PUT";
  call.key = key;
  call.headers = {{"content-md5", Md5Base64(bytes)}};
  if (options.if_absent) {
    call.headers.emplace_back(dialect.if_absent_name, dialect.if_absent_value);
    call.new_connection = true;
  }
  call.body = bytes;
  const Answer answer = client_->Do(call);
  const bool lost_maybe = options.if_absent && answer.tries > 1;
  if (answer.status.code() == Code::kFailedPrecondition && lost_maybe) {
    // An earlier try may have been done although its answer was not; then this object is ours.
    auto there = ReadAll(*this, key, static_cast<int64_t>(bytes.size()));
    if (there.ok() && *there == bytes) return OkStatus();
  }
  RETURN_IF_ERROR(answer.status);
  // Something between us and the store may say 200 to anything.
  if (IsEtag(answer.http.Header("etag"))) return OkStatus();
  return Fail(
      reasons::kObjectStorageUnavailable,
      fmt::format("{} did not say what it stored as {}; check the endpoint", client_->name(), key));
}

StatusOr<std::unique_ptr<MultipartUpload>> XmlStore::Begin(const std::string& key,
                                                           int64_t part_bytes) {
  RETURN_IF_ERROR(CheckKey(key));
  RETURN_IF_ERROR(CheckPartBytes(part_bytes));
  ASSIGN_OR_RETURN(std::unique_ptr<XmlUpload> upload,
                   XmlUpload::Begin(client_.get(), key, part_bytes));
  return std::unique_ptr<MultipartUpload>(std::move(upload));
}

StatusOr<ListPage> XmlStore::List(const std::string& prefix, const std::string& token) {
  RETURN_IF_ERROR(CheckListArguments(prefix, token));
  ListPage page;
  std::string after = token;
  for (;;) {
    Call call;
    call.operation = "List";
    call.method = "GET";
    call.query = {{"list-type", "2"}, {"max-keys", std::to_string(kListMax)}};
    if (!prefix.empty()) call.query.emplace_back("prefix", prefix + "/");
    if (!after.empty()) call.query.emplace_back("start-after", after);
    const Answer answer = client_->Do(call);
    RETURN_IF_ERROR(answer.status);
    auto list = ParseList(answer.http.body);
    if (!list.ok()) {
      return Fail(reasons::kObjectStorageUnavailable,
                  fmt::format("{}: {}; check the endpoint", client_->name(),
                              std::string(list.status().message())));
    }
    for (ObjectInfo& info : list->objects) {
      after = info.key;
      // Somebody else's objects in our bucket are not ours to see.
      const bool ours = IsObjectKey(info.key) && CheckListArguments(prefix, info.key).ok();
      if (ours) page.objects.push_back(std::move(info));
    }
    if (!list->truncated || list->objects.empty()) return page;
    if (page.objects.empty()) continue;
    page.next_token = page.objects.back().key;
    return page;
  }
}

Status XmlStore::Delete(const std::string& key) {
  RETURN_IF_ERROR(CheckKey(key));
  Call call;
  call.operation = "Delete";
  call.method = "DELETE";
  call.key = key;
  const Status status = client_->Do(call).status;
  return status.code() == Code::kNotFound ? OkStatus() : status;
}

Status XmlStore::Copy(const std::string& from, const std::string& to) {
  RETURN_IF_ERROR(CheckKey(to));
  ASSIGN_OR_RETURN(ObjectInfo source, Head(from));
  if (from == to) return OkStatus();
  if (source.bytes > copy_bytes_max_) return CopyInParts(from, to, source.bytes);
  Call call;
  call.operation = "Copy";
  call.method = "PUT";
  call.key = to;
  call.headers = {{std::string(client_->options().dialect->header_prefix) + "copy-source",
                   "/" + client_->options().bucket + "/" + PercentEncode(from, true)}};
  call.silence_max = kCopyMax;
  const Status status = client_->Do(call).status;
  return status.code() == Code::kNotFound ? NoSuchObject(from) : status;
}

Status XmlStore::CopyInParts(const std::string& from, const std::string& to, int64_t bytes) {
  const int64_t part_bytes =
      std::max({std::min(kCopyPartBytes, copy_bytes_max_), kPartBytesMin, bytes / kPartsMax + 1});
  ASSIGN_OR_RETURN(std::unique_ptr<XmlUpload> upload,
                   XmlUpload::Begin(client_.get(), to, part_bytes));
  int number = 0;
  for (int64_t offset = 0; offset < bytes; offset += part_bytes) {
    RETURN_IF_ERROR(
        upload->CopyPart(++number, from, {offset, std::min(part_bytes, bytes - offset)}));
  }
  return upload->Complete();
}

Status XmlStore::AbortUploads(const std::string& prefix, WallTime before) {
  RETURN_IF_ERROR(CheckListArguments(prefix, ""));
  Call call;
  call.operation = "ListUploads";
  call.method = "GET";
  call.query = {{"uploads", ""}};
  if (!prefix.empty()) call.query.emplace_back("prefix", prefix + "/");
  call.give_up_after = std::chrono::seconds(5);  // there is another time
  const Answer answer = client_->Do(call);
  RETURN_IF_ERROR(answer.status);
  ASSIGN_OR_RETURN(std::vector<OpenUpload> uploads, ParseUploads(answer.http.body));
  for (const OpenUpload& upload : uploads) {
    if (!prefix.empty() && upload.key.rfind(prefix + "/", 0) != 0) continue;
    // "2026-12-01T10:00:00.000Z": the fraction does not matter for what is a day old.
    const auto begun = ParseRfc3339Seconds(upload.initiated.substr(0, 19) + "Z");
    if (!begun.has_value() || *begun >= before) continue;
    RETURN_IF_ERROR(AbortUpload(client_.get(), upload.key, upload.upload_id));
  }
  return OkStatus();
}

}  // namespace torpor::objstore
