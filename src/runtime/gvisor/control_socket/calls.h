#pragma once
// The calls that Torpor makes on a control socket, in the form each runsc release wants. Pure.

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/gvisor/control_socket/client.h"

namespace torpor::gvisor {

// The guest's interface as its network stack is told; addresses are text.
struct GuestLink {
  std::string name;
  std::array<uint8_t, 6> mac = {};
  int mtu = 1500;
  std::string address;
  int prefix_bits = 0;
  std::string network;  // the address without its host bits
  std::string gateway;  // empty = none
};

// What differs between releases. Calls come without descriptors.
struct ControlCalls {
  std::string_view release;  // the date in its version
  // Descriptors: one AF_PACKET socket per link. `link` may be null: loopback only.
  ControlCall (*create_links)(const GuestLink* link);
  // Descriptors: checkpoint.img, pages_meta.img, pages.img.
  ControlCall (*restore)();
  // The same, to be written.
  ControlCall (*checkpoint)();
  // Answered only by a sandbox whose guest lives.
  ControlCall (*processes)(const std::string& id);
};

// The calls of the runsc that prints this version; null when they are not known.
const ControlCalls* ControlCallsOf(std::string_view version);

}  // namespace torpor::gvisor
