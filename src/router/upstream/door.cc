#include "router/upstream/door.h"

#include <arpa/inet.h>
#include <sys/un.h>

#include <charconv>

#include <fmt/format.h>

#include "router/h1/head.h"

namespace torpor::router {
namespace {

// For a door that answers with a status only.
std::string_view ReasonOfStatus(int status) {
  switch (status) {
    case 404:
      return "NOT_HERE";
    case 409:
      return "STALE_GENERATION";
    case 503:
      return "DRAINING";
    case 502:
      return "CONNECT_REFUSED";
    case 403:
      return "NO_SUCH_PORT";
    default:
      return "REFUSED";
  }
}

}  // namespace

std::string DoorRequest(const Route& route, int port, std::string_view router_id) {
  std::string name = fmt::format("{}.{}.actor.torpor:{}", route.uid, route.generation, port);
  return fmt::format("CONNECT {} HTTP/1.1\r\nHost: {}\r\ntorpor-router: {}\r\n\r\n", name, name,
                     router_id);
}

std::string ControlRequest(std::string_view router_id) {
  return fmt::format(
      "GET /torpor/control HTTP/1.1\r\nHost: door\r\nConnection: Upgrade\r\n"
      "Upgrade: torpor-control/1\r\ntorpor-router: {}\r\n\r\n",
      router_id);
}

std::optional<DoorAnswer> ParseDoorAnswer(std::string_view head) {
  ResponseHead parsed;
  if (ParseResponseHead(head, kResponseLimits, false, &parsed) != Rule::kNone) return std::nullopt;
  DoorAnswer answer;
  answer.open = parsed.status == 200;
  for (const Field& field : parsed.fields) {
    if (EqualsIgnoreCase(field.name, "torpor-reason")) answer.reason = field.value;
    if (EqualsIgnoreCase(field.name, "torpor-generation")) {
      std::from_chars(field.value.data(), field.value.data() + field.value.size(),
                      answer.generation);
    }
  }
  if (!answer.open && answer.reason.empty()) answer.reason = ReasonOfStatus(parsed.status);
  return answer;
}

StatusOr<DoorAddress> ParseDoorAddress(std::string_view text) {
  DoorAddress address;
  if (text.starts_with("unix:")) {
    address.path = text.substr(5);
    if (address.path.empty() || address.path.front() != '/' ||
        address.path.size() >= sizeof(sockaddr_un{}.sun_path)) {
      return Error(Code::kInvalidArgument, "FIELD_INVALID", "not a usable unix socket path");
    }
    return address;
  }
  size_t colon = text.rfind(':');
  std::string_view host = text.substr(0, colon);
  std::string_view port = colon == std::string_view::npos ? "" : text.substr(colon + 1);
  auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), address.port);
  if (error != std::errc() || end != port.data() + port.size() || address.port < 1 ||
      address.port > 65535) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID", "not `unix:<path>` or `ip:port`");
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  address.ip = host;
  in_addr v4;
  in6_addr v6;
  if (inet_pton(AF_INET, address.ip.c_str(), &v4) != 1 &&
      inet_pton(AF_INET6, address.ip.c_str(), &v6) != 1) {
    return Error(Code::kInvalidArgument, "FIELD_INVALID", "not `unix:<path>` or `ip:port`");
  }
  return address;
}

}  // namespace torpor::router
