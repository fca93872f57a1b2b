#pragma once
// Where a door listens, as Asio wants it.

#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/local/stream_protocol.hpp>

#include "router/upstream/door.h"
#include "router/upstream/net.h"

namespace torpor::router {

// `address` comes from ParseDoorAddress.
inline net::generic::stream_protocol::endpoint EndpointOf(const DoorAddress& address) {
  if (!address.path.empty()) return net::local::stream_protocol::endpoint(address.path);
  ErrorCode ignored;
  auto ip = net::ip::make_address(address.ip, ignored);
  return net::ip::tcp::endpoint(ip, static_cast<unsigned short>(address.port));
}

}  // namespace torpor::router
