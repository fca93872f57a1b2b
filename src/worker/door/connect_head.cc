#include "worker/door/connect_head.h"

#include <charconv>

#include "base/uuid.h"

namespace torpor::worker {
namespace {

constexpr std::string_view kMethod = "CONNECT ";
constexpr std::string_view kControl = "GET /torpor/control";
constexpr std::string_view kProtocol = "torpor-control/1";
constexpr std::string_view kVersion = " HTTP/1.1";
constexpr std::string_view kHostSuffix = ".actor.torpor:";
constexpr size_t kUuidSize = 36;

ConnectHead Bad(std::string_view problem) {
  ConnectHead head;
  head.state = HeadState::kBad;
  head.problem = problem;
  return head;
}

// Decimal digits without sign or leading zero, from 1 to `max`.
bool ParseNumber(std::string_view text, int64_t max, int64_t* out) {
  if (text.empty() || text.size() > 19 || text[0] == '0') return false;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
  }
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return error == std::errc() && end == text.data() + text.size() && *out <= max;
}

bool ParseAuthority(std::string_view text, ConnectTarget* target) {
  if (text.size() <= kUuidSize + 1 || text[kUuidSize] != '.') return false;
  target->uid = std::string(text.substr(0, kUuidSize));
  if (!IsUuid(target->uid)) return false;
  text.remove_prefix(kUuidSize + 1);
  size_t dot = text.find('.');
  if (dot == std::string_view::npos) return false;
  int64_t port = 0;
  std::string_view rest = text.substr(dot);
  if (rest.substr(0, kHostSuffix.size()) != kHostSuffix) return false;
  if (!ParseNumber(text.substr(0, dot), INT64_MAX, &target->generation)) return false;
  if (!ParseNumber(rest.substr(kHostSuffix.size()), 65535, &port)) return false;
  target->port = static_cast<int>(port);
  return true;
}

bool IsTokenChar(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool EqualsIgnoreCase(std::string_view a, std::string_view lower) {
  if (a.size() != lower.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    char c = a[i] >= 'A' && a[i] <= 'Z' ? static_cast<char>(a[i] + 32) : a[i];
    if (c != lower[i]) return false;
  }
  return true;
}

struct Fields {
  std::string router;
  bool connection_upgrade = false;
  bool protocol = false;
};

bool IsRouterName(std::string_view text) {
  if (text.empty() || text.size() > kRouterNameMax) return false;
  for (char c : text) {
    if (!IsTokenChar(c)) return false;
  }
  return true;
}

// A problem, or nothing.
std::string_view ReadField(std::string_view line, std::string_view authority, Fields* fields) {
  size_t colon = line.find(':');
  if (colon == std::string_view::npos || colon == 0) return "field without a name";
  std::string_view name = line.substr(0, colon);
  for (char c : name) {
    if (!IsTokenChar(c)) return "bad field name";
  }
  if (EqualsIgnoreCase(name, "content-length") || EqualsIgnoreCase(name, "transfer-encoding")) {
    return "there is no body";
  }
  std::string_view value = line.substr(colon + 1);
  while (!value.empty() && value.front() == ' ') value.remove_prefix(1);
  while (!value.empty() && value.back() == ' ') value.remove_suffix(1);
  if (EqualsIgnoreCase(name, "host") && !authority.empty() && value != authority) {
    return "Host differs from the target";
  }
  if (EqualsIgnoreCase(name, "torpor-router")) {
    if (!fields->router.empty() || !IsRouterName(value)) return "bad router name";
    fields->router = value;
  }
  if (EqualsIgnoreCase(name, "connection")) {
    fields->connection_upgrade = EqualsIgnoreCase(value, "upgrade");
  }
  if (EqualsIgnoreCase(name, "upgrade")) fields->protocol = value == kProtocol;
  return {};
}

// Only printable ASCII and the line ends CR LF.
bool HasBadBytes(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    auto c = static_cast<unsigned char>(bytes[i]);
    if (c == '\r') {
      if (i + 1 < bytes.size() && bytes[i + 1] != '\n') return true;
    } else if (c == '\n') {
      if (i == 0 || bytes[i - 1] != '\r') return true;
    } else if (c < 0x20 || c > 0x7e) {
      return true;
    }
  }
  return false;
}

}  // namespace

ConnectHead ParseConnectHead(std::string_view bytes) {
  if (HasBadBytes(bytes)) return Bad("bad byte");
  ConnectHead head;
  head.control = !bytes.empty() && bytes[0] == kControl[0];
  std::string_view method = head.control ? kControl : kMethod;
  size_t shown = std::min(bytes.size(), method.size());
  if (bytes.substr(0, shown) != method.substr(0, shown)) return Bad("neither CONNECT nor control");
  size_t end = bytes.find("\r\n\r\n");
  if (end == std::string_view::npos) {
    return bytes.size() >= kConnectHeadBytesMax ? Bad("head too large") : ConnectHead{};
  }
  if (end + 4 > kConnectHeadBytesMax) return Bad("head too large");
  if (bytes.size() > end + 4) return Bad("bytes before the answer");

  std::string_view lines = bytes.substr(0, end + 2);
  size_t line_end = lines.find("\r\n");
  std::string_view request = lines.substr(method.size(), line_end - method.size());
  if (request.size() < kVersion.size() ||
      request.substr(request.size() - kVersion.size()) != kVersion) {
    return Bad("not HTTP/1.1");
  }
  std::string_view authority = request.substr(0, request.size() - kVersion.size());
  if (head.control ? !authority.empty() : !ParseAuthority(authority, &head.target)) {
    return Bad("bad target");
  }
  Fields fields;
  lines.remove_prefix(line_end + 2);
  for (int count = 0; !lines.empty(); ++count) {
    if (count == kConnectHeadFieldsMax) return Bad("too many fields");
    line_end = lines.find("\r\n");
    std::string_view problem = ReadField(lines.substr(0, line_end), authority, &fields);
    if (!problem.empty()) return Bad(problem);
    lines.remove_prefix(line_end + 2);
  }
  if (head.control && (fields.router.empty() || !fields.connection_upgrade || !fields.protocol)) {
    return Bad("control needs a name and its upgrade");
  }
  head.router = std::move(fields.router);
  head.state = HeadState::kComplete;
  return head;
}

}  // namespace torpor::worker
