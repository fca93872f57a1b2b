#pragma once
// Watches the frames of a WebSocket pass by: which carry data, and where one ends. Nothing is
// checked and nothing is changed; a peer that breaks the protocol only misleads the idle clock.
//
// Not thread-safe; one per direction.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace torpor::router {

class FrameWatcher {
 public:
  // The next bytes of the stream. True when a byte of a data frame was among them: text, binary or
  // a continuation, not ping, pong or close.
  bool Pass(const char* data, size_t size);
  // Between two frames: the only place where one can be put in.
  bool at_boundary() const { return need_ == 2 && have_ == 0; }
  bool closed() const { return closed_; }  // A close frame went by.

 private:
  uint8_t head_[14];  // Two bytes, up to eight of the length, four of the mask.
  size_t have_ = 0;
  size_t need_ = 2;
  uint64_t payload_left_ = 0;
  bool data_ = false;
  bool closed_ = false;
};

// An unmasked close frame, as a server sends it. `reason` has at most 123 bytes.
std::string CloseFrame(uint16_t code, std::string_view reason);

}  // namespace torpor::router
