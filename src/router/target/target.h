#pragma once
// Which actor a request means: from `ate-target-actor` or from the host name, one or the other,
// never a guess. Pure functions, any thread.

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "router/h1/head.h"

namespace torpor::router {

// A name; unique inside the system at one moment. The uid is what the route says.
struct ActorKey {
  std::string atespace;
  std::string actor;

  std::string ToString() const { return atespace + "/" + actor; }
  bool operator==(const ActorKey&) const = default;
};
struct ActorKeyHash {
  size_t operator()(const ActorKey& key) const {
    size_t h = std::hash<std::string>()(key.atespace);
    return h ^ (std::hash<std::string>()(key.actor) + 0x9e3779b97f4a7c15u + (h << 6) + (h >> 2));
  }
};

class TargetRules {
 public:
  // `suffixes`: the --actor-domain list. `header_hosts`: names (besides localhost and addresses)
  // under which this router may be addressed with the header form.
  TargetRules(std::vector<std::string> suffixes, std::vector<std::string> header_hosts);

  const std::vector<std::string>& suffixes() const { return suffixes_; }
  const std::vector<std::string>& header_hosts() const { return header_hosts_; }

 private:
  std::vector<std::string> suffixes_;  // Lower case, without outer dots, longest first.
  std::vector<std::string> header_hosts_;
};

struct Target {
  ActorKey key;
  std::optional<int> port;  // torpor-target-port; whether the actor has it is decided later.
  std::string path;         // Origin form of the request target.
};

struct TargetError {
  int status = 400;
  std::string_view reason;  // BAD_REQUEST, TARGET_CONFLICT, BAD_PORT, NO_TARGET
  std::string message;
};

std::variant<Target, TargetError> ResolveTarget(const RequestHead& head, const TargetRules& rules);

// `host[:port]` without its port, lower case, without one trailing dot. Nothing when it is not a
// host: bad characters, bad port, unbalanced brackets. Addresses in brackets keep them.
std::optional<std::string> NormalizeHost(std::string_view host);
// An IPv4 address or a bracketed IPv6 address.
bool IsAddressHost(std::string_view normalized);

}  // namespace torpor::router
