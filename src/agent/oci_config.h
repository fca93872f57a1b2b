#pragma once
// config.json of a container for an OCI runtime. Pure: equal inputs give equal bytes, since a
// restore must get the configuration that was captured.

#include <map>
#include <string>
#include <vector>

#include "base/status.h"
#include "torpor/v1/common.pb.h"

namespace torpor::agent {

struct OciInputs {
  std::string image_config;  // the image's config blob: {"config": {"Env": ..., "Cmd": ...}}
  torpor::v1::ContainerSpec container;
  torpor::v1::ActorIdentity actor;
  std::string rootfs_path;  // absolute, shared and never written to
  // The host's directory behind each volume, by volume name.
  struct HostDirectory {
    std::string path;
    bool writable = false;
  };
  std::map<std::string, HostDirectory> volumes;
  // /etc/passwd and /etc/group of the image, for users given by name; empty = not there.
  std::string passwd;
  std::string group;
};

// INTERNAL INVALID_CONTAINER_CONFIG when image and template together give nothing that can run: no
// command, an unknown user, capability or volume.
StatusOr<std::string> BuildOciConfig(const OciInputs& in);

}  // namespace torpor::agent
