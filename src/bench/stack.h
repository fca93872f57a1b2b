#pragma once
// A Torpor of the driver's own, in a fresh directory and on free ports; or one that is up already.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/status.h"

namespace torpor::bench {

// Where the data directories of own stacks are made; the roles' users can reach it.
inline constexpr char kStackParent[] = "/var/tmp";
inline constexpr char kStackPrefix[] = "torpor-bench-";

struct StackOptions {
  std::string image_layout_dir;  // absolute
  std::string runsc;             // absolute
  std::string platform;
  std::string sandbox_class = "gvisor";
  int64_t worker_actors = 0;  // that run at once; 0 = the worker's own limit
  // Sandboxes kept ready for a template; -1 = the worker's own choice, 0 = none, and no control
  // socket either.
  int64_t warm_pool = -1;
  int64_t router_threads = 0;  // 0 = the router's own choice
  // For comparisons: another program, more flags of `torpor up`, more of its environment.
  std::string binary;  // empty = this one
  std::vector<std::string> flags;
  std::vector<std::string> env;  // NAME=value
};

// Belongs to one thread.
class Stack {
 public:
  // Returns when Torpor is ready, at most after a minute.
  static StatusOr<std::unique_ptr<Stack>> Start(const StackOptions& options);
  // A `torpor up` of somebody else, found by its data directory; never stopped.
  static StatusOr<std::unique_ptr<Stack>> Attach(const std::string& dir,
                                                 const std::string& router_address);
  ~Stack();

  const std::string& dir() const { return dir_; }
  std::string node_dir() const { return dir_ + "/node"; }
  std::string endpoint() const { return "unix:" + dir_ + "/run/api.sock"; }
  const std::string& router_address() const { return router_address_; }
  pid_t supervisor_pid() const;
  // Role -> pid, as the supervisor says.
  std::map<std::string, pid_t> RolePids() const;
  bool attached() const { return attached_; }

  // Stops it and removes its directory. Idempotent.
  Status Stop();
  // The last lines of every role's log.
  std::string LogTails() const;

 private:
  Stack(std::string dir, std::string router_address, bool attached, std::string binary)
      : dir_(std::move(dir)),
        router_address_(std::move(router_address)),
        attached_(attached),
        binary_(std::move(binary)) {}

  const std::string dir_;
  const std::string router_address_;
  const bool attached_;
  const std::string binary_;
  bool stopped_ = false;
};

// Stops and removes what killed drivers left. Only for the holder of the MachineLock.
Status RemoveLeftovers();
// Ports of the loopback that were free a moment ago.
StatusOr<std::vector<int>> FreePorts(size_t count);
// Absolute path of this program.
std::string SelfPath();

}  // namespace torpor::bench
