#pragma once
// Where requests wait while their actor wakes. One flight per actor brings it up, however many
// wait.
//
// A flight belongs to the lot, not to the request that began it: it lives while anyone waits, and
// who leaves changes nothing for the others. Each request has its own deadline, which ends its
// waiting, never the wake. A flight ends with its outcome; who comes later starts a new one.
//
// A request may let its deadline be moved: while the control plane says that the wake is under way
// and cold (an image or a snapshot has to come from elsewhere), by a few seconds at a time. It is
// asked shortly before a deadline, once per flight.
//
// A request that only looks up a running actor takes no slot: slots are counted from the moment a
// flight has to wait (a first failure, or no answer within `lookup_grace`).
//
// Thread-safe. No thread of its own: `Timers` calls it back. Callbacks run without the lock held.

#include <functional>
#include <list>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/sync.h"
#include "base/time.h"
#include "router/park/resolver.h"
#include "router/park/wake_report.h"

namespace torpor::router {

struct ParkLimits {
  size_t requests_max = 2048;  // 0: no parking, one attempt per request.
  size_t per_actor_max = 256;
  size_t memory_bytes_max = 64 << 20;
  Duration lookup_grace = std::chrono::milliseconds(100);
};

struct ParkOutcome {
  enum class Kind {
    kRoute,     // Go on to `route`.
    kFailed,    // The wake failed with `status`; waiting would not help.
    kBudget,    // The deadline passed; `status` is the last failure, OK while the wake goes on.
    kFull,      // No slot; `cap` names the limit.
    kDraining,  // The router shuts down.
  };
  Kind kind = Kind::kFailed;
  RoutePtr route;
  Status status;
  WakeRole role = WakeRole::kNone;
  std::shared_ptr<WakeReport> report;  // Only for kTriggered.
  int queue_position = 0;              // Of kBudget and kFull, from 1.
  std::string_view cap;
  std::optional<WakeProgress> progress;  // Of kBudget, if the wake is known to be under way.
  MonotonicTime deadline{};              // Of kRoute: until when it would have waited.
};

class ParkingLot {
 public:
  // Runs `call` at or soon after `when`, on any thread.
  using Timer = std::function<void(MonotonicTime when, std::function<void()> call)>;

  struct Parts {
    Clock* clock;
    ActorResolver* resolver;
    Timer timer;
    std::function<double()> random01;  // Called with the lock held.
    std::function<RoutePtr(const ActorKey&, RoutePtr)>
        on_route;  // Keeps a new route; returns the one to use.
    std::function<void(const Status&)> on_retry;
  };
  struct Request {
    ActorKey key;
    MonotonicTime deadline;
    size_t bytes = 0;              // Held while it waits.
    std::string traceparent{};     // The wake carries that of the first request of a flight.
    MonotonicTime not_before{};    // A flight begun by this request waits until then.
    MonotonicTime extend_until{};  // The deadline may be moved until then.
  };
  struct Stats {
    size_t parked = 0;   // With a slot.
    size_t looking = 0;  // Waiting without one.
    size_t flights = 0;
    size_t memory_bytes = 0;
  };

  ParkingLot(ParkLimits limits, Parts parts) : limits_(limits), parts_(std::move(parts)) {}

  // `done` runs exactly once unless Leave comes first, possibly before Park returns. The ticket is
  // never 0.
  uint64_t Park(Request request, std::function<void(ParkOutcome)> done) EXCLUDES(mu_);
  void Leave(uint64_t ticket) EXCLUDES(mu_);
  // Everybody gets kDraining, now and later.
  void Drain() EXCLUDES(mu_);
  // Does what is due; called by the timer.
  void Tick() EXCLUDES(mu_);
  Stats stats() const EXCLUDES(mu_);
  struct FlightStatus {
    ActorKey key;
    size_t waiting = 0;
    bool calling = false;
    int failures = 0;
  };
  // At most `max` of them.
  std::vector<FlightStatus> flights(size_t max) const EXCLUDES(mu_);

 private:
  struct Waiter {
    uint64_t ticket;
    MonotonicTime deadline;
    MonotonicTime extend_until;
    size_t bytes;
    std::function<void(ParkOutcome)> done;
    MonotonicTime due{};     // Of its entry in due_: the time to ask, then the deadline.
    bool asks_next = false;  // That entry is the time to ask how far the wake is.
  };
  struct Flight {
    uint64_t id;
    ActorKey key;
    std::string traceparent;
    std::list<Waiter> waiters;  // FIFO
    bool calling = false;
    bool counted = false;  // Its waiters hold slots.
    int failures = 0;
    Status last;
    bool asking = false;                   // How far the wake is,
    std::optional<WakeProgress> progress;  // which was this
    MonotonicTime progress_at{};           // at this time.
    MonotonicTime wake_up{};               // Next attempt, or the end of lookup_grace; in due_.
  };
  struct Due {
    MonotonicTime when;
    uint64_t id;  // A ticket, or a flight.
    bool flight;
    auto operator<=>(const Due&) const = default;
  };
  using Actions = std::vector<std::function<void()>>;

  Flight* FlightOf(const ActorKey& key) REQUIRES(mu_);
  void Call(Flight* flight, Actions* actions) REQUIRES(mu_);
  void OnAnswer(uint64_t flight_id, StatusOr<ActorResolver::Answer> answer) EXCLUDES(mu_);
  void Land(Flight* flight, const ActorResolver::Answer& answer, Actions* actions) REQUIRES(mu_);
  void Fail(Flight* flight, Status status, Actions* actions) REQUIRES(mu_);
  void Count(Flight* flight, Actions* actions) REQUIRES(mu_);
  std::string_view CapFor(const Flight& flight, size_t bytes, size_t already) const REQUIRES(mu_);
  // Takes the waiter out of the flight and of every count.
  Waiter Remove(Flight* flight, std::list<Waiter>::iterator it) REQUIRES(mu_);
  void EndIfAbandoned(Flight* flight) REQUIRES(mu_);
  void Erase(Flight* flight) REQUIRES(mu_);
  void SetWakeUp(Flight* flight, MonotonicTime when) REQUIRES(mu_);
  void OnDue(const Due& due, MonotonicTime now, Actions* actions) REQUIRES(mu_);
  void OnWaiterDue(uint64_t ticket, MonotonicTime now, Actions* actions) REQUIRES(mu_);
  // The waiter's next time to ask or, if that is too late, its deadline.
  void SetDue(Waiter* waiter, MonotonicTime now) REQUIRES(mu_);
  void Ask(Flight* flight, MonotonicTime now, Actions* actions) REQUIRES(mu_);
  void OnProgress(uint64_t flight_id, StatusOr<std::optional<WakeProgress>> progress) EXCLUDES(mu_);
  // What is known about the wake, with the time up to now.
  std::optional<WakeProgress> FreshProgress(const Flight& flight, MonotonicTime now) const
      REQUIRES(mu_);
  // The timer call that is needed for the earliest due entry, if any.
  void Arm(Actions* actions) REQUIRES(mu_);

  const ParkLimits limits_;
  const Parts parts_;
  mutable Mutex mu_;
  bool draining_ GUARDED_BY(mu_) = false;
  uint64_t next_id_ GUARDED_BY(mu_) = 1;
  std::unordered_map<ActorKey, uint64_t, ActorKeyHash> by_key_ GUARDED_BY(mu_);
  std::unordered_map<uint64_t, std::unique_ptr<Flight>> flights_ GUARDED_BY(mu_);
  std::unordered_map<uint64_t, Flight*> tickets_ GUARDED_BY(mu_);
  std::set<Due> due_ GUARDED_BY(mu_);
  std::optional<MonotonicTime> armed_ GUARDED_BY(mu_);
  size_t parked_ GUARDED_BY(mu_) = 0;
  size_t memory_bytes_ GUARDED_BY(mu_) = 0;
};

}  // namespace torpor::router
