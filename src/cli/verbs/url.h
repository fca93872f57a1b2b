#pragma once
// The address of an actor, for `url` and `run`.

#include <string>

#include "cli/session.h"

namespace torpor::cli {

// Both forms: the host name that browsers and curl resolve themselves, and the header. `router` is
// HOST:PORT of the router.
std::string DrawUrl(const ateapi::ObjectRef& actor, const std::string& router,
                    const std::string& domain);

struct RouterFlags {
  std::string router = "127.0.0.1:7780";
  std::string domain = "actors.localhost";
};

}  // namespace torpor::cli
