#pragma once
// The few rtnetlink requests a worker needs, without a process per call.
//
// A Netlink is one socket. It speaks for ever about the network namespace in which the opening
// thread was, wherever it is used from. Thread-safe: one request at a time. Errors are the errno of
// the kernel as Status (EEXIST is ALREADY_EXISTS, ENODEV and ESRCH are NOT_FOUND), naming the
// request.

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "base/status.h"
#include "base/sync.h"
#include "base/unique_fd.h"

namespace torpor::os {

using MacAddress = std::array<uint8_t, 6>;

// An IPv4 address in host byte order.
using Ipv4 = uint32_t;
constexpr Ipv4 MakeIpv4(uint8_t a, uint8_t b, uint8_t c, uint8_t d) {
  return static_cast<Ipv4>(a) << 24 | static_cast<Ipv4>(b) << 16 | static_cast<Ipv4>(c) << 8 | d;
}

struct VethSpec {
  std::string name;  // here; at most 15 characters
  MacAddress mac = {};
  std::string peer_name;  // in the other namespace
  MacAddress peer_mac = {};
  int peer_netns_fd = -1;
};

// A routing rule for packets that carry a mark. Lower priorities are asked first.
struct MarkRule {
  uint32_t mark = 0;
  uint32_t mask = 0xffffffff;
  uint32_t table = 0;  // the routing table to ask; 0 = the packet is dropped
  uint32_t priority = 0;
};

class Netlink {
 public:
  static StatusOr<std::unique_ptr<Netlink>> Open();

  // One request; the end here is up afterwards, the peer is not.
  Status CreateVeth(const VethSpec& spec) EXCLUDES(mu_);
  StatusOr<int> LinkIndex(std::string_view name) EXCLUDES(mu_);
  Status SetUp(int index) EXCLUDES(mu_);
  // OK when there is no such link.
  Status DeleteLink(std::string_view name) EXCLUDES(mu_);
  // These four replace what is there, so they may be repeated.
  Status SetAddress(int index, Ipv4 address, int prefix_bits) EXCLUDES(mu_);
  Status SetDefaultRoute(int index, Ipv4 gateway) EXCLUDES(mu_);
  Status SetNeighbour(int index, Ipv4 address, const MacAddress& mac) EXCLUDES(mu_);
  // `address` is reached directly through the link, in `table`; goes with the link.
  Status SetHostRoute(int index, Ipv4 address, uint32_t table) EXCLUDES(mu_);
  // IPv4. OK when the rule is there already, or is not there any more.
  Status AddRule(const MarkRule& rule) EXCLUDES(mu_);
  Status DeleteRule(const MarkRule& rule) EXCLUDES(mu_);

 private:
  explicit Netlink(UniqueFd fd) : fd_(std::move(fd)) {}
  class Message;
  // Sends, waits for the acknowledgement; `reply` receives the first non-ack message, if wanted.
  Status Call(Message& message, std::string_view what, std::string* reply = nullptr) EXCLUDES(mu_);
  static void Append(Message& message, const MarkRule& rule);

  const UniqueFd fd_;
  Mutex mu_;
  uint32_t sequence_ GUARDED_BY(mu_) = 0;
};

}  // namespace torpor::os
