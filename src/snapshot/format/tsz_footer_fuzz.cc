// The end of an object, of whatever size it is said to be: a footer that is accepted writes the
// same bytes again and names a place inside the object.

#include "base/log.h"
#include "snapshot/format/tsz.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torpor::snapshot;
  std::string_view object(reinterpret_cast<const char*>(data), size);
  const size_t footer_bytes = std::min(object.size(), static_cast<size_t>(kTszFooterBytes));
  const std::string_view frame = object.substr(object.size() - footer_bytes);
  auto footer = DecodeTszFooter(frame, static_cast<int64_t>(size));
  if (!footer.ok()) {
    CHECK(torpor::ReasonOf(footer.status()) == "SNAPSHOT_CORRUPT");
    return 0;
  }
  CHECK(EncodeTszFooter(*footer) == frame);
  const std::string_view index = object.substr(static_cast<size_t>(footer->index_offset),
                                               static_cast<size_t>(footer->index_bytes));
  CHECK(index.size() + frame.size() + static_cast<size_t>(footer->index_offset) == size);
  // Without the manifest nothing says how large the file is; a small one will do.
  if (!CheckTszIndexChecksum(index, *footer).ok()) return 0;
  auto decoded = DecodeTszIndex(index, {4096, footer->index_offset});
  CHECK(decoded.ok() || torpor::ReasonOf(decoded.status()) == "SNAPSHOT_CORRUPT");
  return 0;
}
