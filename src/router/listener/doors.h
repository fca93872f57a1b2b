#pragma once
// The control connections to all doors, and what they say: an activation drains, goes on, is gone.
// Internal to listener/.
//
// Lives on the thread of `io`; Want and Changed may be called by any thread. While an activation
// drains, the cell that its routes share says so (ActivityCell::phase): new requests park, idle
// connections are closed, and the door is told how much is still in flight.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/time.h"
#include "router/answer/metrics.h"
#include "router/idle/activity.h"
#include "router/upstream/control_link.h"

namespace torpor::router {

struct Shard;

class Doors : public ControlLink::User {
 public:
  struct Parts {
    net::io_context* io = nullptr;
    std::string router_id;
    Clock* clock = nullptr;
    ActivityTracker* activity = nullptr;
    Metrics* metrics = nullptr;
    size_t shards = 0;
    // Runs the call once on the thread of each shard, later.
    std::function<void(std::function<void(Shard*)>)> on_every_shard;
    // Nothing is known any more about the actors behind this door.
    std::function<void(const std::string& door)> on_lost;
  };
  explicit Doors(Parts parts) : parts_(std::move(parts)) {}

  // A route leads through this door: it gets a control connection, if it has none.
  void Want(const std::string& door);
  // A request of a draining activation ended, or its answer began.
  void Changed(const std::shared_ptr<ActivityCell>& cell);

  // The rest is called on the thread of `io`.
  void Close();
  struct DoorStatus {
    std::string door;
    bool open = false;
    size_t drains = 0;
  };
  std::vector<DoorStatus> status() const;

  void OnControlOpen(ControlLink* link) override;
  void OnControlLine(ControlLink* link, const torpor::v1::DoorLine& line) override;
  void OnControlLost(ControlLink* link) override;

 private:
  struct Door {
    std::shared_ptr<ControlLink> link;
    bool open = false;
    MonotonicTime wanted{};
    int failures = 0;
    std::unique_ptr<SteadyTimer> retry;
  };
  using Activation = std::pair<std::string, int64_t>;  // uid, generation
  struct Drain {
    std::string door;
    int64_t seq = 0;
    std::shared_ptr<ActivityCell> cell;
    size_t shards_left = 0;
    MonotonicTime began{};
    MonotonicTime oldest{};  // Start of the oldest request in flight.
    int told_open = -1;
    int told_streams = -1;
  };

  void Connect(const std::string& name, Door* door);
  void Retry(const std::string& name);
  void StartDrain(ControlLink* link, const torpor::v1::DoorDrain& drain);
  void OnShardReady(const Activation& activation, int64_t seq, MonotonicTime oldest);
  void Report(const Activation& activation, Drain* drain);
  void EndDrain(const Activation& activation, DrainResult result);

  const Parts parts_;
  bool closed_ = false;
  std::unordered_map<std::string, Door> doors_;
  std::map<Activation, Drain> drains_;
};

}  // namespace torpor::router
