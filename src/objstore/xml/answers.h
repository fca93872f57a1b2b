#pragma once
// The XML of answers and of the one request that has some. Pure functions; answers are foreign text
// of at most kHttpBodyBytesMax, and nothing of them is trusted. INVALID_ARGUMENT when an answer is
// not what it should be.

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "objstore/object_store.h"

namespace torpor::objstore {

struct ErrorAnswer {
  std::string code;    // "NoSuchKey"; letters and digits only, else empty
  std::string region;  // where the bucket lies, when the answer says so
};
// Empty when `text` is no <Error>.
ErrorAnswer ParseError(std::string_view text);

struct ListAnswer {
  std::vector<ObjectInfo> objects;  // keys as the store has them
  bool truncated = false;
};
StatusOr<ListAnswer> ParseList(std::string_view text);

StatusOr<std::string> ParseUploadId(std::string_view text);

struct OpenUpload {
  std::string key;
  std::string upload_id;
  std::string initiated;  // "2026-12-01T10:00:00.000Z"
};
// One page of uploads that were begun and not ended; more than that is left to the next time.
StatusOr<std::vector<OpenUpload>> ParseUploads(std::string_view text);

// The ETag of a part that was copied.
StatusOr<std::string> ParseCopiedPart(std::string_view text);

// An entity tag that can be sent back: printable, without markup.
bool IsEtag(std::string_view text);
// Parts by number.
std::string CompleteRequest(const std::map<int, std::string>& etags);

}  // namespace torpor::objstore
