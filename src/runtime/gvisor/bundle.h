#pragma once
// The OCI bundle as runsc gets it.

#include <string>

#include "base/status.h"

namespace torpor::gvisor {

// Which of several containers of one sandbox it is: runsc goes by annotations, and by the name
// finds a container again in an image.
struct Membership {
  std::string sandbox_id;  // the root container's id for runsc
  std::string name;
  bool root = false;
};

// `config` (an OCI config.json found in `bundle_dir`) with what only the runtime knows: the network
// namespace is the one that the start helper has entered (without a path runsc would make a new,
// empty one), the root path is absolute, and cgroup settings that runsc must not act on are gone
// except the cpu quota, from which it takes the number of cpus. `member` is null for a sandbox of
// one container. INTERNAL INVALID_CONTAINER_CONFIG.
StatusOr<std::string> ComposeConfig(const std::string& config, const std::string& bundle_dir,
                                    int64_t cpu_milli, const Membership* member = nullptr);

}  // namespace torpor::gvisor
