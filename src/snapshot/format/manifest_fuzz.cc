// Whatever the manifest parser accepts must keep every bound, so it can be written and read again.

#include "base/log.h"
#include "snapshot/format/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace torpor::snapshot;
  auto manifest = ParseManifest({reinterpret_cast<const char*>(data), size});
  if (!manifest.ok()) {
    CHECK(torpor::ReasonOf(manifest.status()) == "SNAPSHOT_CORRUPT");
    return 0;
  }
  auto text = SerializeManifest(*manifest);
  CHECK(text.ok());
  auto again = ParseManifest(*text);
  CHECK(again.ok());
  CHECK(*SerializeManifest(*again) == *text);
  return 0;
}
