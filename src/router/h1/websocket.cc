#include "router/h1/websocket.h"

#include <algorithm>

namespace torpor::router {

bool FrameWatcher::Pass(const char* data, size_t size) {
  bool carried = false;
  for (size_t i = 0; i < size;) {
    if (payload_left_ > 0) {
      auto step = static_cast<size_t>(std::min<uint64_t>(payload_left_, size - i));
      payload_left_ -= step;
      i += step;
      carried = carried || data_;
      if (payload_left_ == 0) need_ = 2;
      continue;
    }
    head_[have_++] = static_cast<uint8_t>(data[i++]);
    if (have_ == 2) {
      uint8_t length = head_[1] & 0x7f;
      need_ = 2u + (length == 126 ? 2u : length == 127 ? 8u : 0u) + ((head_[1] & 0x80) ? 4u : 0u);
      data_ = (head_[0] & 0x0f) <= 2;
      carried = carried || data_;
      closed_ = closed_ || (head_[0] & 0x0f) == 8;
    }
    if (have_ < need_ || have_ < 2) continue;
    uint8_t length = head_[1] & 0x7f;
    payload_left_ = length;
    if (length >= 126) {
      payload_left_ = 0;
      for (size_t k = 2; k < (length == 126 ? 4u : 10u); ++k) {
        payload_left_ = payload_left_ << 8 | head_[k];
      }
    }
    have_ = 0;
    need_ = payload_left_ > 0 ? 0 : 2;
  }
  return carried;
}

std::string CloseFrame(uint16_t code, std::string_view reason) {
  reason = reason.substr(0, 123);
  std::string out;
  out.push_back(static_cast<char>(0x88));
  out.push_back(static_cast<char>(reason.size() + 2));
  out.push_back(static_cast<char>(code >> 8));
  out.push_back(static_cast<char>(code & 0xff));
  return out.append(reason);
}

}  // namespace torpor::router
