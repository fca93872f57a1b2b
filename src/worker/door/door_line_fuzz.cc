// Whatever a line of the control connection says: no crash, and what is taken reads back the same.
#include <cstdint>

#include "base/log.h"
#include "model/door_line.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto line = torpor::ParseDoorLine({reinterpret_cast<const char*>(data), size});
  if (!line.ok()) return 0;
  std::string text = torpor::FormatDoorLine(*line);
  CHECK(!text.empty() && text.back() == '\n');
  text.pop_back();
  CHECK(text.find('\n') == std::string::npos);
  // Escapes may make it longer than what may be read.
  if (text.size() > torpor::kDoorLineBytesMax) return 0;
  auto again = torpor::ParseDoorLine(text);
  CHECK(again.ok());
  CHECK(again->SerializeAsString() == line->SerializeAsString());
  return 0;
}
