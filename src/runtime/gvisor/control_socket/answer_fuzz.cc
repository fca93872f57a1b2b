// Whatever the bytes are, in whatever pieces they come: reading ends, stays within its bounds, and
// tells the same.

#include <algorithm>
#include <cstdint>

#include "base/log.h"
#include "runtime/gvisor/control_socket/answer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using torpor::gvisor::AnswerReader;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  AnswerReader whole;
  whole.Append(bytes);
  AnswerReader pieces;
  for (size_t at = 0; at < bytes.size(); at += 3) pieces.Append(bytes.substr(at, 3));
  CHECK(whole.state() == pieces.state());
  CHECK(whole.text() == pieces.text());
  CHECK(whole.text().size() <= torpor::gvisor::kAnswerBytesMax);
  torpor::gvisor::Answer answer;
  (void)torpor::gvisor::ParseAnswer(whole.text(), &answer);
  (void)torpor::gvisor::ParseAnswer(bytes, &answer);
  return 0;
}
