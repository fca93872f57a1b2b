// An answer of a store, whatever it is: no parser takes it for more than it can be.

#include "base/log.h"
#include "objstore/credentials/key_file.h"
#include "objstore/http/retry.h"
#include "objstore/xml/answers.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torpor::objstore;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const ErrorAnswer error = ParseError(text);
  CHECK(error.code.size() <= 64 && error.region.size() <= 64);
  CHECK(error.code.find_first_of(" \n<&\"") == std::string::npos);
  auto list = ParseList(text);
  if (list.ok()) {
    for (const ObjectInfo& info : list->objects) CHECK(!info.key.empty() && info.bytes >= 0);
  } else {
    CHECK(torpor::ReasonOf(list.status()) == "FIELD_INVALID");
  }
  auto id = ParseUploadId(text);
  CHECK(!id.ok() || !id->empty());
  auto uploads = ParseUploads(text);
  CHECK(!uploads.ok() || uploads->size() <= size);
  auto part = ParseCopiedPart(text);
  CHECK(!part.ok() || IsEtag(*part));
  CHECK(ParseRetryAfter(text) <= std::chrono::minutes(1));
  (void)ParseKeyFile(text);
  return 0;
}
