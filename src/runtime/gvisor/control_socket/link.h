#pragma once
// Takes the link of a network namespace for a guest, as runsc itself does when it starts one.

#include <string>

#include "base/status.h"
#include "base/unique_fd.h"
#include "runtime/gvisor/control_socket/calls.h"

namespace torpor::gvisor {

struct TakenLink {
  GuestLink link;
  UniqueFd packets;  // AF_PACKET, bound to the interface
};

// Reads what was set up for `eth0` (IPv4), opens its packet socket and removes the address, so that
// the namespace's own kernel answers nothing any more. Without an eth0 `packets` is invalid. The
// interface is a veth. Any thread; works in a short-lived thread inside the namespace.
StatusOr<TakenLink> TakeLink(const std::string& netns_path);

// The gateway of the default route through `name`, from the text of /proc/net/route; empty = none.
std::string DefaultGateway(const std::string& routes, const std::string& name);

}  // namespace torpor::gvisor
