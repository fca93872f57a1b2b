#pragma once
// Image references pinned by digest, and which registries may be asked. Pure but for
// ResolvesPublic.

#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace torpor::mover {

struct ImageReference {
  std::string registry;    // host[:port], lower case; docker.io when the reference names none
  std::string repository;  // "library/debian"
  std::string digest;      // sha256:<hex>
  // registry/repository@digest; a tag is dropped, since the digest decides.
  std::string ToString() const;
};

// NAME[:TAG]@sha256:<hex>. INVALID_ARGUMENT says what is missing.
StatusOr<ImageReference> ParseImageReference(std::string_view reference);

struct RegistryRules {
  std::vector<std::string> allowed;   // host[:port]; empty = all with public addresses only
  std::vector<std::string> insecure;  // host[:port] without TLS; allowed as well
};

// The addresses of a host name; empty when it has none. Injected for tests.
using Resolver = std::vector<std::string> (*)(const std::string& host);
std::vector<std::string> ResolveHost(const std::string& host);

// False for loopback, private, link-local, shared and other addresses that are not of the public
// internet. Text that is no address is not public either.
bool IsPublicAddress(const std::string& address);

// PERMISSION_DENIED NOT_ALLOWED with what to configure; UNAVAILABLE IMAGE_REGISTRY_UNAVAILABLE when
// a name does not resolve.
Status CheckRegistry(const std::string& registry, const RegistryRules& rules, Resolver resolver);
bool IsInsecure(const std::string& registry, const RegistryRules& rules);

}  // namespace torpor::mover
