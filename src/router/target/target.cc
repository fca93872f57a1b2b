#include "router/target/target.h"

#include <arpa/inet.h>

#include <algorithm>

#include <fmt/format.h>

#include "model/names.h"

namespace torpor::router {
namespace {

std::string LowerCase(std::string_view text) {
  std::string out(text);
  for (char& c : out) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + 32);
  }
  return out;
}

bool ParsePort(std::string_view text, int* port) {
  if (text.empty() || text.size() > 5) return false;
  int value = 0;
  for (char c : text) {
    if (c < '0' || c > '9') return false;
    value = value * 10 + (c - '0');
  }
  *port = value;
  return value >= 1 && value <= 65535;
}

TargetError Conflict(std::string message) {
  return TargetError{400, "TARGET_CONFLICT", std::move(message)};
}
TargetError Bad(std::string message) { return TargetError{400, "BAD_REQUEST", std::move(message)}; }

struct Names {
  bool under_suffix = false;  // The host is a suffix or below one.
  std::string_view labels;    // What stands before the suffix.
};

Names SplitSuffix(std::string_view host, const TargetRules& rules) {
  for (const std::string& suffix : rules.suffixes()) {
    if (host == suffix) return {true, {}};
    if (host.size() > suffix.size() + 1 && host.ends_with(suffix) &&
        host[host.size() - suffix.size() - 1] == '.') {
      return {true, host.substr(0, host.size() - suffix.size() - 1)};
    }
  }
  return {};
}

// `<actor>.<atespace>`
std::optional<ActorKey> KeyOfLabels(std::string_view labels) {
  size_t dot = labels.find('.');
  if (dot == std::string_view::npos) return std::nullopt;
  std::string_view actor = labels.substr(0, dot);
  std::string_view atespace = labels.substr(dot + 1);
  if (!IsLabel(actor) || !IsLabel(atespace)) return std::nullopt;
  return ActorKey{std::string(atespace), std::string(actor)};
}

std::optional<ActorKey> KeyOfHeader(std::string_view value) {
  size_t slash = value.find('/');
  if (slash == std::string_view::npos) return std::nullopt;
  std::string_view atespace = value.substr(0, slash);
  std::string_view actor = value.substr(slash + 1);
  if (!IsLabel(actor) || !IsLabel(atespace)) return std::nullopt;
  return ActorKey{std::string(atespace), std::string(actor)};
}

// Splits an absolute-form target; the authority is left empty for the origin form.
bool SplitTarget(std::string_view target, std::string_view* authority, std::string* path) {
  size_t scheme =
      target.front() == '/' || target == "*" ? std::string_view::npos : target.find("://");
  if (scheme == std::string_view::npos) {
    *path = target;
    return true;
  }
  std::string_view rest = target.substr(scheme + 3);
  size_t end = rest.find_first_of("/?");
  *authority = rest.substr(0, end);
  std::string_view tail = end == std::string_view::npos ? std::string_view() : rest.substr(end);
  *path = tail.starts_with('/') ? std::string(tail) : "/" + std::string(tail);
  return !authority->empty();
}

struct HeaderValues {
  const Field* actor = nullptr;
  const Field* port = nullptr;
  std::string_view host;
  bool cross_site = false;
  int actors = 0;
  int ports = 0;
};

HeaderValues Collect(const RequestHead& head) {
  HeaderValues values;
  for (const Field& field : head.fields) {
    switch (field.id) {
      case FieldId::kTargetActor:
        values.actor = &field;
        ++values.actors;
        break;
      case FieldId::kTargetPort:
        values.port = &field;
        ++values.ports;
        break;
      case FieldId::kHost:
        values.host = field.value;
        break;
      case FieldId::kSecFetchSite:
        values.cross_site |= EqualsIgnoreCase(field.value, "cross-site");
        break;
      default:
        break;
    }
  }
  return values;
}

std::optional<TargetError> CheckHeaderForm(const HeaderValues& values, std::string_view host,
                                           const Names& names, const ActorKey& key,
                                           const TargetRules& rules) {
  if (values.cross_site) {
    return Conflict("a web page of another site may not name an actor by ate-target-actor");
  }
  if (names.under_suffix) {
    if (names.labels.empty() || KeyOfLabels(names.labels) == key) return std::nullopt;
    return Conflict(fmt::format("Host {} and ate-target-actor name different actors", host));
  }
  const auto& allowed = rules.header_hosts();
  if (host.empty() || host == "localhost" || IsAddressHost(host) ||
      std::find(allowed.begin(), allowed.end(), host) != allowed.end()) {
    return std::nullopt;
  }
  return Conflict(
      fmt::format("ate-target-actor is not allowed with the host name {}: use localhost, an "
                  "address, or a name listed in --target-header-hosts",
                  host));
}

TargetError NoTarget(const TargetRules& rules) {
  return TargetError{
      404, "NO_TARGET",
      fmt::format("the request names no actor: send it to http://<actor>.<atespace>.{}/ or with "
                  "the header `ate-target-actor: <atespace>/<actor>`",
                  rules.suffixes().empty() ? "actors.localhost" : rules.suffixes().front())};
}

}  // namespace

TargetRules::TargetRules(std::vector<std::string> suffixes, std::vector<std::string> header_hosts) {
  for (const std::string& text : suffixes) {
    std::string suffix = LowerCase(text);
    while (suffix.starts_with('.')) suffix.erase(0, 1);
    while (suffix.ends_with('.')) suffix.pop_back();
    if (!suffix.empty()) suffixes_.push_back(std::move(suffix));
  }
  std::stable_sort(suffixes_.begin(), suffixes_.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  for (const std::string& text : header_hosts) header_hosts_.push_back(LowerCase(text));
}

std::optional<std::string> NormalizeHost(std::string_view host) {
  if (host.empty()) return std::string();
  std::string_view name = host;
  std::string_view port;
  bool has_port = false;
  if (host.front() == '[') {
    size_t close = host.find(']');
    if (close == std::string_view::npos) return std::nullopt;
    name = host.substr(0, close + 1);
    std::string_view rest = host.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return std::nullopt;
    has_port = !rest.empty();
    if (has_port) port = rest.substr(1);
    std::string address(name.substr(1, name.size() - 2));
    in6_addr out;
    if (inet_pton(AF_INET6, address.c_str(), &out) != 1) return std::nullopt;
  } else {
    size_t colon = host.find(':');
    name = host.substr(0, colon);
    has_port = colon != std::string_view::npos;
    if (has_port) port = host.substr(colon + 1);
    bool good = std::all_of(name.begin(), name.end(), [](char c) {
      return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
             c == '-' || c == '.' || c == '_';
    });
    if (!good || name.empty() || name.size() > 254) return std::nullopt;
  }
  int number = 0;
  if (has_port && !ParsePort(port, &number)) return std::nullopt;
  std::string out = LowerCase(name);
  if (out.ends_with('.')) out.pop_back();
  if (out.empty() || out.ends_with('.')) return std::nullopt;
  return out;
}

bool IsAddressHost(std::string_view normalized) {
  if (normalized.starts_with('[')) return true;
  in_addr out;
  return inet_pton(AF_INET, std::string(normalized).c_str(), &out) == 1;
}

std::variant<Target, TargetError> ResolveTarget(const RequestHead& head, const TargetRules& rules) {
  Target target;
  HeaderValues values = Collect(head);
  std::string_view authority;
  if (!SplitTarget(head.target, &authority, &target.path)) return Bad("the target has no host");
  std::optional<std::string> host = NormalizeHost(values.host);
  if (!host) return Bad("Host is not a host name");
  if (!authority.empty() && !EqualsIgnoreCase(authority, values.host)) {
    return Conflict("the target and Host name different hosts");
  }
  if (values.actors > 1) return Conflict("ate-target-actor was given more than once");
  if (values.ports > 1) {
    return TargetError{400, "BAD_PORT", "torpor-target-port was given more than once"};
  }
  if (values.ports == 1) {
    int port = 0;
    if (!ParsePort(values.port->value, &port)) {
      return TargetError{400, "BAD_PORT", "torpor-target-port is not a port from 1 to 65535"};
    }
    target.port = port;
  }

  Names names = SplitSuffix(*host, rules);
  if (values.actors == 1) {
    std::optional<ActorKey> key = KeyOfHeader(values.actor->value);
    if (!key) return Bad("ate-target-actor is not <atespace>/<actor>, each a DNS label");
    std::optional<TargetError> error = CheckHeaderForm(values, *host, names, *key, rules);
    if (error) return *std::move(error);
    target.key = *std::move(key);
    return target;
  }
  if (!names.under_suffix || names.labels.find('.') == std::string_view::npos) {
    return NoTarget(rules);
  }
  std::optional<ActorKey> key = KeyOfLabels(names.labels);
  if (!key) {
    return Bad(fmt::format("{} is not <actor>.<atespace>, each a DNS label", names.labels));
  }
  target.key = *std::move(key);
  return target;
}

}  // namespace torpor::router
