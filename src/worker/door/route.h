#pragma once
// One actor as the door sees it: who may be reached, and which connections there are.
//
// Shared between the door's threads and the worker's operations; self-synchronised. It exists from
// Door::Add to the end of the last connection.

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/status.h"
#include "base/sync.h"
#include "base/time.h"
#include "base/unique_fd.h"
#include "torpor/v1/door.pb.h"
#include "worker/door/drain.h"

namespace torpor::worker {

// Begins a TCP connection to a port of the guest: the socket is non-blocking and connecting, or
// connected. Called on the door's threads; must not block.
using DialFunction = std::function<StatusOr<UniqueFd>(int port)>;

enum class Admission { kAdmitted, kDraining, kGone, kTooMany };

// One connection into the guest. The door's threads write it, a drain reads it.
struct Flow {
  explicit Flow(std::string router) : router(std::move(router)) {}
  const std::string router;            // As it named itself; empty = it did not.
  std::atomic<int64_t> last_bytes{0};  // MonotonicTime ticks.
  std::atomic<bool> unanswered{false};
};

class Route {
 public:
  static constexpr int kConnectionsMax = 1024;
  static constexpr size_t kRoutersMax = 64;  // Further ones are not told of drains.

  Route(std::string uid, int64_t generation, std::vector<int> ports, DialFunction dial)
      : uid(std::move(uid)),
        generation(generation),
        ports(std::move(ports)),
        dial(std::move(dial)) {}

  // A connection is admitted, then connected, then closed; or closed at once.
  Admission Admit(const std::string& router) EXCLUDES(mu_);
  void Connected(std::shared_ptr<Flow> flow) EXCLUDES(mu_);
  void Closed(const std::shared_ptr<Flow>& flow, bool was_connected) EXCLUDES(mu_);
  // A request went to the guest and nothing came back yet, or something did.
  void SetUnanswered(Flow* flow, bool unanswered) EXCLUDES(mu_);

  // No admission from here on. Returns the number of this drain.
  int64_t StartDraining(DrainOptions options) EXCLUDES(mu_);
  void StopDraining() EXCLUDES(mu_);
  void MarkGone() EXCLUDES(mu_);
  // The line that tells routers of the drain under way; nothing when there is none.
  std::optional<torpor::v1::DoorLine> drain_line() const EXCLUDES(mu_);

  // All routers that ever had a connection.
  std::vector<std::string> routers() const EXCLUDES(mu_);
  // What happens on a router's control connection during a drain. Asked comes before the line is
  // sent; answers to an earlier drain are ignored.
  void RouterAsked(const std::string& router, MonotonicTime now) EXCLUDES(mu_);
  void RouterAnswered(const std::string& router, int64_t seq, int inflight, int streams)
      EXCLUDES(mu_);
  void RouterLost(const std::string& router) EXCLUDES(mu_);

  // All false when the deadline passed first.
  bool WaitNoneConnecting(MonotonicTime deadline) EXCLUDES(mu_);
  bool WaitEmpty(MonotonicTime deadline) EXCLUDES(mu_);
  // After StartDraining: until the connections have drained (true), or the actor is busy and
  // the drain may be refused.
  bool WaitDrained(Clock* clock, MonotonicTime began) EXCLUDES(mu_);

  struct Counts {
    int connecting = 0;
    int open = 0;
    int unanswered = 0;
  };
  Counts counts() const EXCLUDES(mu_);

  const std::string uid;
  const int64_t generation;
  const std::vector<int> ports;
  const DialFunction dial;

 private:
  DrainView View() const REQUIRES(mu_);

  mutable Mutex mu_;
  CondVar changed_;
  int connecting_ GUARDED_BY(mu_) = 0;
  std::set<std::shared_ptr<Flow>> flows_ GUARDED_BY(mu_);
  std::map<std::string, DrainView::Router> routers_ GUARDED_BY(mu_);
  DrainOptions options_ GUARDED_BY(mu_);  // Of the drain.
  int64_t drain_seq_ GUARDED_BY(mu_) = 0;
  std::atomic<bool> draining_{false};  // Written under mu_.
  bool gone_ GUARDED_BY(mu_) = false;
};

}  // namespace torpor::worker
