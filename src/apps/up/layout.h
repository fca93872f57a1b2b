#pragma once
// The data directory of `torpor up`: where each role finds what, and who may touch it.
//
//   D/token                  token of the TCP listeners, 0600 torpor
//   D/run/                   api.sock, registry.sock (torpor), roles.json, up.lock
//   D/control/torpor.db      SQLite store, torpor only
//   D/store/                 file:// object store, shared by mover and apiserver
//   D/node/                  node directory, root
//   D/images/                OCI layouts that image references are looked up in first
//   D/logs/<role>.log        what each role prints

#include <string>

#include "base/status.h"

namespace torpor::up {

struct Layout {
  std::string dir;  // absolute, without a trailing slash

  std::string Run(const std::string& name) const { return dir + "/run/" + name; }
  std::string Node() const { return dir + "/node"; }
  std::string Store() const { return dir + "/store"; }
  std::string Token() const { return dir + "/token"; }
  std::string Log(const std::string& role) const { return dir + "/logs/" + role + ".log"; }
};

// Makes what is missing, with owners and modes; the token once. PERMISSION_DENIED when a role's
// user could not reach the directory, naming the component in the way.
Status MakeLayout(const Layout& layout);

}  // namespace torpor::up
