#include "objstore/xml/answers.h"

#include <charconv>

#include <pugixml.hpp>

#include "model/reasons.h"
#include "objstore/http/http_client.h"

namespace torpor::objstore {
namespace {

constexpr size_t kUploadIdBytesMax = 1024;

Status Bad(std::string_view what) {
  return Fail(reasons::kFieldInvalid, fmt::format("the store answered no {}", what));
}

// The root element of that name; pugixml knows no entities but the five of XML, so nothing grows.
pugi::xml_node Root(pugi::xml_document* document, std::string_view text, const char* name) {
  if (text.size() > kHttpBodyBytesMax) return {};
  const pugi::xml_parse_result parsed = document->load_buffer(text.data(), text.size());
  return parsed ? document->child(name) : pugi::xml_node();
}

bool IsWord(std::string_view text) {
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::string WordOf(const pugi::xml_node& node) {
  const std::string text = node.text().get();
  return IsWord(text) ? text : "";
}

}  // namespace

ErrorAnswer ParseError(std::string_view text) {
  pugi::xml_document document;
  const pugi::xml_node error = Root(&document, text, "Error");
  return {WordOf(error.child("Code")), WordOf(error.child("Region"))};
}

StatusOr<ListAnswer> ParseList(std::string_view text) {
  pugi::xml_document document;
  const pugi::xml_node root = Root(&document, text, "ListBucketResult");
  if (!root) return Bad("ListBucketResult");
  ListAnswer out;
  out.truncated = std::string_view(root.child("IsTruncated").text().get()) == "true";
  for (const pugi::xml_node& node : root.children("Contents")) {
    ObjectInfo info;
    info.key = node.child("Key").text().get();
    const std::string_view size = node.child("Size").text().get();
    const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), info.bytes);
    if (info.key.empty() || error != std::errc() || end != size.data() + size.size() ||
        info.bytes < 0) {
      return Bad("key and size of an object in its ListBucketResult");
    }
    out.objects.push_back(std::move(info));
  }
  return out;
}

StatusOr<std::string> ParseUploadId(std::string_view text) {
  pugi::xml_document document;
  std::string id =
      Root(&document, text, "InitiateMultipartUploadResult").child("UploadId").text().get();
  if (id.empty() || id.size() > kUploadIdBytesMax) return Bad("UploadId");
  return id;
}

StatusOr<std::vector<OpenUpload>> ParseUploads(std::string_view text) {
  pugi::xml_document document;
  const pugi::xml_node root = Root(&document, text, "ListMultipartUploadsResult");
  if (!root) return Bad("ListMultipartUploadsResult");
  std::vector<OpenUpload> out;
  for (const pugi::xml_node& node : root.children("Upload")) {
    OpenUpload upload{node.child("Key").text().get(), node.child("UploadId").text().get(),
                      node.child("Initiated").text().get()};
    if (upload.key.empty() || upload.upload_id.empty()) return Bad("key and id of an upload");
    out.push_back(std::move(upload));
  }
  return out;
}

StatusOr<std::string> ParseCopiedPart(std::string_view text) {
  pugi::xml_document document;
  std::string etag = Root(&document, text, "CopyPartResult").child("ETag").text().get();
  if (!IsEtag(etag)) return Bad("ETag of a part that was copied");
  return etag;
}

bool IsEtag(std::string_view text) {
  return !text.empty() && text.size() <= 256 && std::all_of(text.begin(), text.end(), [](char c) {
    return c > ' ' && c <= '~' && c != '<' && c != '>' && c != '&';
  });
}

std::string CompleteRequest(const std::map<int, std::string>& etags) {
  std::string out = "<CompleteMultipartUpload>";
  for (const auto& [number, etag] : etags) {
    out += fmt::format("<Part><PartNumber>{}</PartNumber><ETag>{}</ETag></Part>", number, etag);
  }
  return out + "</CompleteMultipartUpload>";
}

}  // namespace torpor::objstore
