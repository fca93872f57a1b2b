#include "router/listener/options.h"

#include <arpa/inet.h>

#include <charconv>
#include <cstring>

#include <fmt/format.h>

#include "model/names.h"

namespace torpor::router {
namespace {

Status Invalid(std::string message) {
  return Error(Code::kInvalidArgument, "FIELD_INVALID", message);
}

// The IPv6 form of an address, IPv4 mapped; `is_v4` tells which it was.
bool ParseAddress(const std::string& text, std::array<uint8_t, 16>* out, bool* is_v4) {
  out->fill(0);
  *is_v4 = inet_pton(AF_INET, text.c_str(), out->data() + 12) == 1;
  if (*is_v4) {
    (*out)[10] = (*out)[11] = 0xff;
    return true;
  }
  return inet_pton(AF_INET6, text.c_str(), out->data()) == 1;
}

bool ParseNumber(std::string_view text, int max, int* out) {
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *out);
  return !text.empty() && error == std::errc() && end == text.data() + text.size() && *out >= 0 &&
         *out <= max;
}

bool SamePrefix(const std::array<uint8_t, 16>& a, const std::array<uint8_t, 16>& b, int bits) {
  size_t whole = static_cast<size_t>(bits / 8);
  if (memcmp(a.data(), b.data(), whole) != 0) return false;
  int rest = bits % 8;
  if (rest == 0) return true;
  auto mask = static_cast<uint8_t>(0xff << (8 - rest));
  return (a[whole] & mask) == (b[whole] & mask);
}

bool IsLoopback(const std::array<uint8_t, 16>& bytes, bool is_v4) {
  if (is_v4) return bytes[12] == 127;
  std::array<uint8_t, 16> one{};
  one[15] = 1;
  return bytes == one;
}

}  // namespace

Status AddressSet::Add(std::string_view text) {
  size_t slash = text.find('/');
  Network network{};
  bool is_v4 = false;
  if (!ParseAddress(std::string(text.substr(0, slash)), &network.bytes, &is_v4)) {
    return Invalid(fmt::format("'{}' is not an address or a network such as 10.0.0.0/8", text));
  }
  int bits_max = is_v4 ? 32 : 128;
  int bits = bits_max;
  if (slash != std::string_view::npos && !ParseNumber(text.substr(slash + 1), bits_max, &bits)) {
    return Invalid(fmt::format("'{}' has a prefix length outside 0..{}", text, bits_max));
  }
  network.bits = is_v4 ? bits + 96 : bits;
  networks_.push_back(network);
  return OkStatus();
}

bool AddressSet::Contains(std::string_view address) const {
  if (networks_.empty()) return false;
  std::array<uint8_t, 16> bytes;
  bool is_v4 = false;
  if (!ParseAddress(std::string(address), &bytes, &is_v4)) return false;
  for (const Network& network : networks_) {
    if (SamePrefix(bytes, network.bytes, network.bits)) return true;
  }
  return false;
}

StatusOr<ListenAddress> ParseListenAddress(std::string_view text) {
  size_t colon = text.rfind(':');
  ListenAddress out;
  if (colon == std::string_view::npos || !ParseNumber(text.substr(colon + 1), 65535, &out.port)) {
    return Invalid(fmt::format("'{}' is not ip:port", text));
  }
  std::string_view host = text.substr(0, colon);
  if (host == "localhost") host = "127.0.0.1";
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
  }
  out.ip = host;
  std::array<uint8_t, 16> bytes;
  bool is_v4 = false;
  if (!ParseAddress(out.ip, &bytes, &is_v4)) {
    return Invalid(fmt::format("'{}' is not ip:port", text));
  }
  out.loopback = IsLoopback(bytes, is_v4);
  return out;
}

Status CheckOptions(const RouterOptions& options, bool may_be_public) {
  if (options.listen.empty()) return Invalid("at least one --router-listen address is needed");
  for (const std::string& text : options.listen) {
    ASSIGN_OR_RETURN(ListenAddress address, ParseListenAddress(text));
    if (!address.loopback && !may_be_public) {
      return Invalid(fmt::format(
          "--router-listen {} can be reached by other machines and nobody authorizes requests "
          "there; listen on 127.0.0.1, say who may in --authorize-tokens-file, or say "
          "--insecure-public if that is wanted",
          text));
    }
  }
  if (!options.admin_listen.empty()) {
    RETURN_IF_ERROR(ParseListenAddress(options.admin_listen).status());
  }
  for (const std::string& domain : options.actor_domains) {
    if (!IsSubdomain(domain)) {
      return Invalid(fmt::format("--actor-domain '{}' is not a lower-case domain name", domain));
    }
  }
  if (options.actor_domains.empty()) return Invalid("at least one --actor-domain is needed");
  AddressSet proxies;
  for (const std::string& text : options.trusted_proxies) RETURN_IF_ERROR(proxies.Add(text));
  return OkStatus();
}

}  // namespace torpor::router
