#include "mover/image_reference.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "model/names.h"
#include "model/reasons.h"

namespace torpor::mover {
namespace {

constexpr size_t kReferenceBytesMax = 512;

Status Bad(std::string_view reference, std::string_view why) {
  return Fail(reasons::kFieldInvalid,
              fmt::format("image reference {}; write NAME@sha256:<64 hex digits>", why),
              {{"image", std::string(reference.substr(0, kReferenceBytesMax))}});
}

bool AllOf(std::string_view text, std::string_view extra) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || extra.find(c) != extra.npos;
  });
}

bool IsRepository(std::string_view text) {
  while (true) {
    size_t slash = text.find('/');
    std::string_view piece = text.substr(0, slash);
    auto edge = [](char c) { return c != '.' && c != '_' && c != '-'; };
    if (!AllOf(piece, "._-") || !edge(piece.front()) || !edge(piece.back())) return false;
    if (slash == text.npos) return true;
    text.remove_prefix(slash + 1);
  }
}

bool IsPort(std::string_view text) {
  return !text.empty() && text.size() <= 5 && text.find_first_not_of("0123456789") == text.npos;
}

// host, host:port or [v6]:port
bool IsRegistry(std::string_view text) {
  if (!text.empty() && text.front() == '[') {
    size_t end = text.find(']');
    in6_addr address;
    if (end == text.npos ||
        inet_pton(AF_INET6, std::string(text.substr(1, end - 1)).c_str(), &address) != 1) {
      return false;
    }
    return text.size() == end + 1 || (text[end + 1] == ':' && IsPort(text.substr(end + 2)));
  }
  size_t colon = text.find(':');
  if (!IsSubdomain(text.substr(0, colon))) return false;
  return colon == text.npos || IsPort(text.substr(colon + 1));
}

std::string HostOf(const std::string& registry) {
  if (registry.front() == '[') return registry.substr(1, registry.find(']') - 1);
  return registry.substr(0, registry.find(':'));
}

bool Listed(const std::string& registry, const std::vector<std::string>& list) {
  return std::find(list.begin(), list.end(), registry) != list.end();
}

struct Block {
  uint32_t network;
  int bits;
};

// The special-purpose blocks of RFC 6890 and RFC 5771 that no public registry lies in.
constexpr Block kSpecial[] = {
    {0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},  {0xa9fe0000, 16},
    {0xac100000, 12}, {0xc0000000, 24}, {0xc0a80000, 16}, {0xc6120000, 15}, {0xe0000000, 3}};

bool IsPublicV4(uint32_t address) {
  for (const Block& block : kSpecial) {
    const uint32_t mask = ~uint32_t{0} << (32 - block.bits);
    if ((address & mask) == block.network) return false;
  }
  return true;
}

}  // namespace

std::string ImageReference::ToString() const {
  return fmt::format("{}/{}@{}", registry, repository, digest);
}

StatusOr<ImageReference> ParseImageReference(std::string_view reference) {
  if (reference.size() > kReferenceBytesMax) return Bad(reference, "is too long");
  const size_t at = reference.find('@');
  if (at == reference.npos) return Bad(reference, "has no digest");
  ImageReference out;
  out.digest = reference.substr(at + 1);
  if (!IsSha256Digest(out.digest)) return Bad(reference, "has a malformed digest");
  std::string_view name = reference.substr(0, at);
  const size_t slash = name.find('/');
  const std::string_view first = name.substr(0, slash);
  // The rule of the Docker reference grammar: a first part with '.' or ':' is a host.
  if (slash != name.npos && (first.find_first_of(".:[") != first.npos || first == "localhost")) {
    out.registry = first;
    name.remove_prefix(slash + 1);
  } else {
    out.registry = "docker.io";
  }
  if (!IsRegistry(out.registry)) return Bad(reference, "has a malformed registry");
  name = name.substr(0, name.find(':'));  // the tag
  if (!IsRepository(name)) return Bad(reference, "has a malformed name");
  out.repository = name;
  if (out.registry == "docker.io" && name.find('/') == name.npos) {
    out.repository = "library/" + out.repository;
  }
  return out;
}

std::vector<std::string> ResolveHost(const std::string& host) {
  addrinfo hints = {};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  std::vector<std::string> out;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &list) != 0) return out;
  for (const addrinfo* entry = list; entry != nullptr; entry = entry->ai_next) {
    char text[NI_MAXHOST];
    if (getnameinfo(entry->ai_addr, entry->ai_addrlen, text, sizeof text, nullptr, 0,
                    NI_NUMERICHOST) == 0) {
      out.emplace_back(text);
    }
  }
  freeaddrinfo(list);
  return out;
}

bool IsPublicAddress(const std::string& address) {
  in_addr v4;
  if (inet_pton(AF_INET, address.c_str(), &v4) == 1) return IsPublicV4(ntohl(v4.s_addr));
  in6_addr v6;
  if (inet_pton(AF_INET6, address.c_str(), &v6) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) {
    uint32_t mapped;
    memcpy(&mapped, v6.s6_addr + 12, sizeof mapped);
    return IsPublicV4(ntohl(mapped));
  }
  return (v6.s6_addr[0] & 0xe0) == 0x20;  // 2000::/3 is the global unicast space
}

bool IsInsecure(const std::string& registry, const RegistryRules& rules) {
  return Listed(registry, rules.insecure);
}

Status CheckRegistry(const std::string& registry, const RegistryRules& rules, Resolver resolver) {
  if (Listed(registry, rules.allowed) || IsInsecure(registry, rules)) return OkStatus();
  const ErrorMetadata metadata = {{"registry", registry}};
  if (!rules.allowed.empty()) {
    return Fail(reasons::kNotAllowed,
                fmt::format("registry {} is not in --allowed-registries of the mover", registry),
                metadata);
  }
  const std::vector<std::string> addresses = resolver(HostOf(registry));
  if (addresses.empty()) {
    return Fail(reasons::kImageRegistryUnavailable,
                fmt::format("registry {} does not resolve; check its name and this machine's DNS",
                            registry),
                metadata);
  }
  for (const std::string& address : addresses) {
    if (!IsPublicAddress(address)) {
      return Fail(reasons::kNotAllowed,
                  fmt::format("registry {} has a private address; name it in --allowed-registries "
                              "of the mover if that is meant",
                              registry),
                  metadata);
    }
  }
  return OkStatus();
}

}  // namespace torpor::mover
