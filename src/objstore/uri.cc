#include "objstore/uri.h"

#include "model/reasons.h"

#include "objstore/object_store.h"

namespace torpor::objstore {
namespace {

Status Bad(std::string_view why) {
  return Fail(reasons::kFieldInvalid,
              fmt::format("storage address {}; write scheme://bucket/path or file:///path", why));
}

bool IsScheme(std::string_view text) {
  auto letter = [](char c) { return c >= 'a' && c <= 'z'; };
  return !text.empty() && text.size() <= 16 && letter(text.front()) &&
         std::all_of(text.begin(), text.end(),
                     [&](char c) { return letter(c) || (c >= '0' && c <= '9'); });
}

// The names that S3 and GCS both take.
bool IsBucket(std::string_view text) {
  auto alnum = [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9'); };
  if (text.size() < 3 || text.size() > 63 || !alnum(text.front()) || !alnum(text.back())) {
    return false;
  }
  return std::all_of(text.begin(), text.end(),
                     [&](char c) { return alnum(c) || c == '-' || c == '.' || c == '_'; });
}

}  // namespace

std::string Uri::ToString() const {
  return path.empty() ? fmt::format("{}://{}", scheme, bucket.empty() ? "/" : bucket)
                      : fmt::format("{}://{}/{}", scheme, bucket, path);
}

StatusOr<Uri> ParseUri(std::string_view text) {
  if (text.size() > kUriBytesMax) return Bad(fmt::format("is longer than {} bytes", kUriBytesMax));
  size_t colon = text.find("://");
  if (colon == std::string_view::npos) return Bad("has no scheme");
  Uri uri;
  uri.scheme = text.substr(0, colon);
  if (!IsScheme(uri.scheme)) return Bad("has a scheme that is not lower-case letters and digits");
  std::string_view rest = text.substr(colon + 3);
  if (rest.find_first_of("?#") != std::string_view::npos) return Bad("has a query or a fragment");
  size_t slash = rest.find('/');
  std::string_view authority = rest.substr(0, slash);
  if (authority.find('@') != std::string_view::npos) return Bad("has user info");
  uri.bucket = authority;
  if (uri.scheme == "file") {
    if (!authority.empty()) return Bad("of a file has a host; it must begin with file:///");
    if (slash == std::string_view::npos) return Bad("of a file has no absolute path");
  } else if (!IsBucket(authority)) {
    return Bad("has a bad bucket name");
  }
  std::string_view path = slash == std::string_view::npos ? "" : rest.substr(slash + 1);
  if (!path.empty() && path.back() == '/') path.remove_suffix(1);
  if (!path.empty() && !IsObjectKey(path)) {
    return Bad("has a path with an empty, hidden or unclean component");
  }
  uri.path = path;
  return uri;
}

bool IsAtOrBelow(const Uri& inner, const Uri& outer) {
  if (inner.scheme != outer.scheme || inner.bucket != outer.bucket) return false;
  if (outer.path.empty() || inner.path == outer.path) return true;
  return inner.path.size() > outer.path.size() && inner.path[outer.path.size()] == '/' &&
         inner.path.compare(0, outer.path.size(), outer.path) == 0;
}

}  // namespace torpor::objstore
