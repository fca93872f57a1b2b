#pragma once
// The protocol of a worker's door: one CONNECT, one answer, then bytes of the actor. Pure
// functions.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/status.h"
#include "router/routes/route.h"

namespace torpor::router {

std::string DoorRequest(const Route& route, int port, std::string_view router_id);
// Asks for the control connection; its answer is a 101.
std::string ControlRequest(std::string_view router_id);

struct DoorAnswer {
  bool open = false;
  std::string reason;      // Of a refusal: NOT_HERE, STALE_GENERATION, DRAINING, CONNECT_REFUSED,
                           // NO_SUCH_PORT, or what else the door said.
  int64_t generation = 0;  // The newest the door knows, 0 = none.
};
// `head` ends with its empty line. Nothing when it is not an HTTP/1.1 head.
std::optional<DoorAnswer> ParseDoorAnswer(std::string_view head);

// `unix:<absolute path>` or `ip:port`.
struct DoorAddress {
  std::string path;  // Empty: TCP.
  std::string ip;
  int port = 0;
};
StatusOr<DoorAddress> ParseDoorAddress(std::string_view text);

}  // namespace torpor::router
