#pragma once
// Whose request it is: the address of the connection, or what a trusted proxy says. Pure functions,
// any thread.

#include <string>
#include <string_view>

#include "router/h1/head.h"
#include "router/listener/options.h"

namespace torpor::router {

// `peer` has the connection. If it is one of `proxies`, the last address of x-forwarded-for that is
// none of them: what stands before it can be made up by the client. Without such an address, or in
// front of something that is no address, the proxy that is nearest to the client. The result lies
// in `head` or in `peer`.
std::string_view ClientAddress(const RequestHead& head, std::string_view peer,
                               const AddressSet& proxies);

// What counts as one client: an IPv4 address, or the first 64 bits of an IPv6 address, because one
// machine can have all the rest. Binary; empty for what is no address.
std::string ClientKey(std::string_view address);

}  // namespace torpor::router
