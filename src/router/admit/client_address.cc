#include "router/admit/client_address.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace torpor::router {
namespace {

std::string_view Trim(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

}  // namespace

std::string_view ClientAddress(const RequestHead& head, std::string_view peer,
                               const AddressSet& proxies) {
  std::string_view out = peer;
  // From the end: each proxy appended whom it saw.
  for (auto field = head.fields.rbegin(); field != head.fields.rend(); ++field) {
    if (field->id != FieldId::kForwardedFor) continue;
    std::string_view rest = field->value;
    while (!rest.empty()) {
      if (!proxies.Contains(out)) return out;
      size_t comma = rest.rfind(',');
      size_t begin = comma == std::string_view::npos ? 0 : comma + 1;
      std::string_view item = Trim(rest.substr(begin));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(0, comma);
      if (item.empty()) continue;
      if (ClientKey(item).empty()) return out;
      out = item;
    }
  }
  return out;
}

std::string ClientKey(std::string_view address) {
  constexpr size_t kV4 = 4;
  constexpr size_t kV6Network = 8;
  // inet_pton wants the end marked.
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (address.size() >= text.size()) return {};
  std::copy(address.begin(), address.end(), text.begin());
  std::array<char, sizeof(in6_addr)> bytes;
  if (inet_pton(AF_INET, text.data(), bytes.data()) == 1) return std::string(bytes.data(), kV4);
  if (inet_pton(AF_INET6, text.data(), bytes.data()) != 1) return {};
  in6_addr v6;
  std::copy(bytes.begin(), bytes.end(), reinterpret_cast<char*>(&v6));
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return std::string(bytes.data() + sizeof(v6) - kV4, kV4);
  return std::string(bytes.data(), kV6Network);
}

}  // namespace torpor::router
