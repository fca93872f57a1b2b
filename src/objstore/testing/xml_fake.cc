#include "objstore/testing/xml_fake.h"

#include <time.h>

#include "objstore/object_store.h"
#include "objstore/xml/signer.h"

namespace torpor::objstore {
namespace {

TestResponse Refuse(int status, const std::string& code) {
  return {
      status,
      {{"content-type", "application/xml"}},
      fmt::format("<?xml version='1.0'?><Error><Code>{}</Code><Message>m</Message></Error>", code)};
}

TestResponse Xml(const std::string& text) {
  return {200, {{"content-type", "application/xml"}}, "<?xml version='1.0'?>" + text};
}

std::string EtagOf(std::string_view bytes) { return "\"" + Md5Base64(bytes) + "\""; }

std::string Escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    out += c == '&' ? "&amp;" : c == '<' ? "&lt;" : std::string(1, c);
  }
  return out;
}

// The text between the first <tag> and </tag> from `at` on, which moves behind it.
std::string Between(const std::string& text, const std::string& tag, size_t* at) {
  const size_t begin = text.find("<" + tag + ">", *at);
  const size_t end = text.find("</" + tag + ">", *at);
  if (begin == std::string::npos || end == std::string::npos) return "";
  *at = end + tag.size() + 3;
  return text.substr(begin + tag.size() + 2, end - begin - tag.size() - 2);
}

}  // namespace

void XmlFake::SetBefore(Before before) {
  MutexLock lock(&mu_);
  before_ = std::move(before);
}

void XmlFake::SetAfter(After after) {
  MutexLock lock(&mu_);
  after_ = std::move(after);
}

void XmlFake::SetBearer(const std::string& token) {
  MutexLock lock(&mu_);
  bearer_ = token;
}

void XmlFake::SetObject(const std::string& key, std::string bytes) {
  MutexLock lock(&mu_);
  objects_[key] = std::move(bytes);
}

std::string XmlFake::Object(const std::string& key) {
  MutexLock lock(&mu_);
  auto it = objects_.find(key);
  return it == objects_.end() ? "" : it->second;
}

size_t XmlFake::objects() {
  MutexLock lock(&mu_);
  return objects_.size();
}

size_t XmlFake::uploads() {
  MutexLock lock(&mu_);
  return uploads_.size();
}

TestResponse XmlFake::Serve(const TestRequest& request) {
  ++requests_;
  Before before;
  After after;
  {
    MutexLock lock(&mu_);
    before = before_;
    after = after_;
  }
  if (before) {
    if (auto instead = before(request); instead.has_value()) return *instead;
  }
  auto refused = CheckForm(request);
  if (!refused.has_value()) refused = CheckRights(request);
  if (refused.has_value()) return *refused;
  const std::string bucket = "/" + options_.bucket;
  const bool in_bucket = request.path == bucket || request.path.rfind(bucket + "/", 0) == 0;
  if (!in_bucket) return Refuse(404, "NoSuchBucket");
  const size_t skip = std::min(bucket.size() + 1, request.path.size());
  TestResponse response = Dispatch(request, PercentDecode(request.path.substr(skip)));
  if (after) after(request, &response);
  return response;
}

// What is refused whoever asks.
std::optional<TestResponse> XmlFake::CheckForm(const TestRequest& request) const {
  if (request.path != PercentEncode(PercentDecode(request.path), true)) {
    return Refuse(400, "InvalidURI");
  }
  const std::set<std::string> known = {"uploads", "uploadId",    "partNumber", "list-type",
                                       "prefix",  "start-after", "max-keys"};
  Query query;
  for (const auto& [name, value] : request.Query()) {
    if (known.count(name) == 0) return Refuse(400, "InvalidArgument");
    query.emplace_back(name, value);
  }
  if (request.query != CanonicalQuery(query)) return Refuse(400, "InvalidArgument");
  const std::string other = IsS3() ? "x-goog-" : "x-amz-";
  const bool about_parts = query.size() > 0 && request.method != "GET";
  for (const auto& [name, value] : request.headers) {
    if (name.rfind(other, 0) == 0) return Refuse(400, "ExcessHeaderValues");
    const bool condition = name.rfind("if-", 0) == 0 || name == "x-goog-if-generation-match";
    if (condition && about_parts) return Refuse(400, "InvalidArgument");
    if (name == "if-none-match" && !IsS3() && request.method == "PUT") {
      return Refuse(400, "InvalidArgument");
    }
  }
  if ((request.method == "PUT" || request.method == "POST") &&
      request.Header("content-length").empty()) {
    return Refuse(411, "MissingContentLength");
  }
  const std::string md5 = request.Header("content-md5");
  if (!md5.empty() && md5 != Md5Base64(request.body)) return Refuse(400, "BadDigest");
  return std::nullopt;
}

// A bearer token, or a signature over everything that is of the dialect.
std::optional<TestResponse> XmlFake::CheckRights(const TestRequest& request) {
  const std::string authorization = request.Header("authorization");
  if (authorization.rfind("Bearer ", 0) == 0) {
    MutexLock lock(&mu_);
    if (!bearer_.empty() && authorization == "Bearer " + bearer_) return std::nullopt;
    return Refuse(401, "AuthenticationRequired");
  }
  tm parts = {};
  const std::string date = request.Header(Field("date"));
  if (strptime(date.c_str(), "%Y%m%dT%H%M%SZ", &parts) == nullptr) {
    return Refuse(403, "AccessDenied");
  }
  SignArgs sign;
  sign.now = std::chrono::system_clock::from_time_t(timegm(&parts));
  if (std::abs(time(nullptr) - timegm(&parts)) > 900) return Refuse(403, "RequestTimeTooSkewed");
  if (authorization.find("Credential=" + options_.access_key + "/") == std::string::npos) {
    return Refuse(403, "InvalidAccessKeyId");
  }
  sign.dialect = options_.dialect;
  sign.method = request.method;
  const std::string host = request.Header("host");
  sign.host = host;
  sign.path = request.path;
  sign.query = request.query;
  sign.region = options_.region;
  const std::set<std::string> added = {Field("date"), Field("content-sha256")};
  const std::set<std::string> unsigned_fields = {"authorization", "host",           "accept",
                                                 "user-agent",    "content-length", "connection"};
  Headers headers;
  for (const auto& [name, value] : request.headers) {
    if (added.count(name) == 0 && unsigned_fields.count(name) == 0) {
      headers.emplace_back(name, value);
    }
  }
  Credentials credentials;
  credentials.access_key = options_.access_key;
  credentials.secret_key = options_.secret_key;
  Authorize(sign, credentials, &headers);
  if (headers.back().second != authorization) return Refuse(403, "SignatureDoesNotMatch");
  return std::nullopt;
}

TestResponse XmlFake::Dispatch(const TestRequest& request, const std::string& key) {
  const auto query = request.Query();
  MutexLock lock(&mu_);
  if (key.empty()) {
    if (request.method != "GET") return Refuse(405, "MethodNotAllowed");
    return query.count("uploads") > 0 ? ListUploads() : List(request);
  }
  if (request.method == "GET" || request.method == "HEAD") return Get(request, key);
  if (request.method == "POST" && query.count("uploads") > 0) {
    const std::string id = fmt::format("upload/{}+=", ++last_id_);
    uploads_[id].key = key;
    return Xml(
        fmt::format("<InitiateMultipartUploadResult><UploadId>{}</UploadId>"
                    "</InitiateMultipartUploadResult>",
                    id));
  }
  if (query.count("uploadId") > 0) {
    auto upload = uploads_.find(query.at("uploadId"));
    if (upload == uploads_.end() || upload->second.key != key) return Refuse(404, "NoSuchUpload");
    if (request.method == "PUT") return PutPart(request);
    if (request.method == "POST") return Complete(request);
    uploads_.erase(upload);
    return {204, {}, ""};
  }
  if (request.method == "PUT") return Put(request, key);
  if (request.method != "DELETE") return Refuse(405, "MethodNotAllowed");
  if (objects_.erase(key) == 0 && !IsS3()) return Refuse(404, "NoSuchKey");
  return {204, {}, ""};
}

TestResponse XmlFake::List(const TestRequest& request) {
  const auto query = request.Query();
  auto value = [&](const char* name) { return query.count(name) > 0 ? query.at(name) : ""; };
  if (value("list-type") != "2") return Refuse(400, "InvalidArgument");
  const size_t max = std::min<size_t>(1000, std::stoul(value("max-keys")));
  std::string contents;
  size_t count = 0;
  bool truncated = false;
  for (const auto& [key, bytes] : objects_) {
    if (key.rfind(value("prefix"), 0) != 0 || key <= value("start-after")) continue;
    if (count++ == max) {
      truncated = true;
      break;
    }
    contents += fmt::format("<Contents><Key>{}</Key><Size>{}</Size></Contents>", Escaped(key),
                            bytes.size());
  }
  return Xml(
      fmt::format("<ListBucketResult xmlns='http://doc.s3.amazonaws.com/2006-03-01'>"
                  "<IsTruncated>{}</IsTruncated>{}</ListBucketResult>",
                  truncated, contents));
}

TestResponse XmlFake::ListUploads() {
  std::string out = "<ListMultipartUploadsResult>";
  for (const auto& [id, upload] : uploads_) {
    out += fmt::format(
        "<Upload><Key>{}</Key><UploadId>{}</UploadId>"
        "<Initiated>2020-01-01T00:00:00.000Z</Initiated></Upload>",
        Escaped(upload.key), id);
  }
  return Xml(out + "</ListMultipartUploadsResult>");
}

TestResponse XmlFake::Get(const TestRequest& request, const std::string& key) {
  auto it = objects_.find(key);
  if (it == objects_.end()) return Refuse(404, "NoSuchKey");
  const std::string& bytes = it->second;
  TestResponse response;
  response.headers = {{"etag", EtagOf(bytes)}};
  const std::string match = request.Header("if-match");
  if (!match.empty() && match != EtagOf(bytes)) return Refuse(412, "PreconditionFailed");
  const std::string range = request.Header("range");
  if (range.empty()) {
    response.body = bytes;
    response.headers.emplace_back("content-length", std::to_string(bytes.size()));
    return response;
  }
  const size_t dash = range.find('-');
  if (range.rfind("bytes=", 0) != 0 || dash == std::string::npos) {
    return Refuse(400, "InvalidArgument");
  }
  const size_t begin = std::stoul(range.substr(6, dash - 6));
  if (begin >= bytes.size()) return Refuse(416, "InvalidRange");
  const std::string last = range.substr(dash + 1);
  const size_t end = last.empty() ? bytes.size() : std::min(bytes.size(), std::stoul(last) + 1);
  response.status = 206;
  response.body = bytes.substr(begin, end - begin);
  response.headers.emplace_back("content-range",
                                fmt::format("bytes {}-{}/{}", begin, end - 1, bytes.size()));
  return response;
}

TestResponse XmlFake::Put(const TestRequest& request, const std::string& key) {
  const std::string source = request.Header(Field("copy-source"));
  if (!source.empty()) {
    const std::string bucket = "/" + options_.bucket + "/";
    if (source.rfind(bucket, 0) != 0) return Refuse(404, "NoSuchBucket");
    auto it = objects_.find(PercentDecode(source.substr(bucket.size())));
    if (it == objects_.end()) return Refuse(404, "NoSuchKey");
    const std::string bytes = it->second;
    objects_[key] = bytes;
    return Xml(fmt::format("<CopyObjectResult><ETag>{}</ETag></CopyObjectResult>", EtagOf(bytes)));
  }
  const bool if_absent =
      request.Header(options_.dialect->if_absent_name) == options_.dialect->if_absent_value;
  if (if_absent && objects_.count(key) > 0) return Refuse(412, "PreconditionFailed");
  objects_[key] = request.body;
  return {200, {{"etag", EtagOf(request.body)}}, ""};
}

TestResponse XmlFake::PutPart(const TestRequest& request) {
  const auto query = request.Query();
  const int number = query.count("partNumber") > 0 ? std::stoi(query.at("partNumber")) : 0;
  if (number < 1 || number > kPartsMax) return Refuse(400, "InvalidArgument");
  Upload& upload = uploads_[query.at("uploadId")];
  const std::string source = request.Header(Field("copy-source"));
  if (source.empty()) {
    upload.parts[number] = request.body;
    return {200, {{"etag", EtagOf(request.body)}}, ""};
  }
  if (!IsS3()) return Refuse(400, "InvalidArgument");  // Cloud Storage copies no parts
  auto it = objects_.find(PercentDecode(source.substr(options_.bucket.size() + 2)));
  size_t first = 0;
  size_t last = 0;
  const std::string range = request.Header(Field("copy-source-range"));
  if (it == objects_.end() || sscanf(range.c_str(), "bytes=%zu-%zu", &first, &last) != 2) {
    return Refuse(404, "NoSuchKey");
  }
  upload.parts[number] = it->second.substr(first, last - first + 1);
  return Xml(fmt::format("<CopyPartResult><ETag>{}</ETag></CopyPartResult>",
                         EtagOf(upload.parts[number])));
}

TestResponse XmlFake::Complete(const TestRequest& request) {
  const auto upload = uploads_.find(request.Query().at("uploadId"));
  std::string bytes;
  int previous = 0;
  size_t at = 0;
  for (;;) {
    const std::string number_text = Between(request.body, "PartNumber", &at);
    if (number_text.empty()) break;
    const std::string etag = Between(request.body, "ETag", &at);
    const int number = std::stoi(number_text);
    const auto part = upload->second.parts.find(number);
    if (number <= previous) return Refuse(400, "InvalidPartOrder");
    if (part == upload->second.parts.end() || etag != EtagOf(part->second)) {
      return Refuse(400, "InvalidPart");
    }
    // Every part but the last; so the one before this one.
    if (previous > 0 &&
        upload->second.parts[previous].size() < static_cast<size_t>(kPartBytesMin)) {
      return Refuse(400, "EntityTooSmall");
    }
    bytes += part->second;
    previous = number;
  }
  if (previous == 0) return Refuse(400, "MalformedXML");
  objects_[upload->second.key] = std::move(bytes);
  uploads_.erase(upload);
  return Xml("<CompleteMultipartUploadResult></CompleteMultipartUploadResult>");
}

}  // namespace torpor::objstore
