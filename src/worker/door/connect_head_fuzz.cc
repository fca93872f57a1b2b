// Whatever the bytes are: no crash, and what is taken as complete reads back the same.
#include <cstdint>

#include <fmt/format.h>

#include "base/log.h"
#include "worker/door/connect_head.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using torpor::worker::ConnectHead;
  using torpor::worker::HeadState;
  std::string_view bytes(reinterpret_cast<const char*>(data), size);
  ConnectHead head = torpor::worker::ParseConnectHead(bytes);
  if (head.state != HeadState::kComplete) return 0;
  CHECK(size <= torpor::worker::kConnectHeadBytesMax);
  CHECK(head.router.size() <= torpor::worker::kRouterNameMax);
  if (head.control) return 0;
  ConnectHead again = torpor::worker::ParseConnectHead(
      fmt::format("CONNECT {}.{}.actor.torpor:{} HTTP/1.1\r\n\r\n", head.target.uid,
                  head.target.generation, head.target.port));
  CHECK(again.state == HeadState::kComplete);
  CHECK(again.target.uid == head.target.uid);
  CHECK(again.target.generation == head.target.generation);
  CHECK(again.target.port == head.target.port);
  return 0;
}
