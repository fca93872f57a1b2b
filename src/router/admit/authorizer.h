#pragma once
// Who may send requests to which actors. Without an authorizer everybody may who reaches the
// router, so such a router listens on loopback only, unless it is told otherwise.

#include <optional>
#include <string>

#include "router/h1/head.h"
#include "router/target/target.h"

namespace torpor::router {

struct Denial {
  bool known = false;   // False: nobody knows who this is. True: known, but this is not allowed.
  std::string message;  // For the client; names no secret.
};

// Thread-safe.
class Authorizer {
 public:
  virtual ~Authorizer() = default;
  // Nothing: allowed. Asked for every request on the thread of its connection, before the request
  // waits for anything, so it must not block. `head` lives as long as the call.
  virtual std::optional<Denial> Authorize(const RequestHead& head, const ActorKey& actor) = 0;
  // Takes over what has changed meanwhile. Called once a second by one thread.
  virtual void Refresh() {}
};

}  // namespace torpor::router
