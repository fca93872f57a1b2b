#include "router/park/parking_lot.h"

#include <algorithm>

#include "router/park/retry.h"

namespace torpor::router {
namespace {

constexpr Duration kCapacityWaitMax = std::chrono::seconds(60);
// How long before a deadline it is asked how far the wake is, and how long the answer is good for.
constexpr Duration kAskBefore = std::chrono::seconds(1);
constexpr Duration kProgressGood = std::chrono::seconds(2);
// Not asked earlier than this after the request came: most wakes are over by then.
constexpr Duration kAskNotBefore = std::chrono::milliseconds(200);
constexpr Duration kExtension = std::chrono::seconds(5);

template <typename Actions>
void RunAll(Actions& actions) {
  for (auto& action : actions) action();
}

}  // namespace

uint64_t ParkingLot::Park(Request request, std::function<void(ParkOutcome)> done) {
  Actions actions;
  uint64_t ticket = 0;
  {
    MutexLock lock(&mu_);
    ticket = next_id_++;
    if (draining_) {
      actions.push_back([done] { done(ParkOutcome{ParkOutcome::Kind::kDraining}); });
    } else {
      Flight* flight = FlightOf(request.key);
      std::string_view cap =
          flight->counted ? CapFor(*flight, request.bytes, flight->waiters.size()) : "";
      if (!cap.empty()) {
        ParkOutcome outcome{ParkOutcome::Kind::kFull};
        outcome.cap = cap;
        outcome.queue_position = static_cast<int>(flight->waiters.size()) + 1;
        actions.push_back([done, outcome] { done(outcome); });
      } else {
        if (flight->traceparent.empty()) flight->traceparent = std::move(request.traceparent);
        if (flight->counted) {
          ++parked_;
          memory_bytes_ += request.bytes;
        }
        flight->waiters.push_back(
            Waiter{ticket, request.deadline, request.extend_until, request.bytes, std::move(done)});
        tickets_[ticket] = flight;
        SetDue(&flight->waiters.back(), parts_.clock->Now());
        bool fresh = !flight->calling && flight->wake_up == MonotonicTime{};
        if (fresh && request.not_before > parts_.clock->Now()) {
          // The last answer did not help: this flight begins with a pause.
          SetWakeUp(flight, request.not_before);
          Count(flight, &actions);
          EndIfAbandoned(flight);
        } else if (fresh) {
          Call(flight, &actions);
        }
      }
    }
    Arm(&actions);
  }
  RunAll(actions);
  return ticket;
}

void ParkingLot::Leave(uint64_t ticket) {
  MutexLock lock(&mu_);
  auto found = tickets_.find(ticket);
  if (found == tickets_.end()) return;
  Flight* flight = found->second;
  auto it = std::find_if(flight->waiters.begin(), flight->waiters.end(),
                         [ticket](const Waiter& w) { return w.ticket == ticket; });
  Remove(flight, it);
  EndIfAbandoned(flight);
}

void ParkingLot::Drain() {
  Actions actions;
  {
    MutexLock lock(&mu_);
    draining_ = true;
    std::vector<uint64_t> ids;
    for (auto& [id, flight] : flights_) ids.push_back(id);
    for (uint64_t id : ids) {
      Flight* flight = flights_[id].get();
      while (!flight->waiters.empty()) {
        Waiter waiter = Remove(flight, flight->waiters.begin());
        actions.push_back(
            [done = std::move(waiter.done)] { done(ParkOutcome{ParkOutcome::Kind::kDraining}); });
      }
      EndIfAbandoned(flight);
    }
  }
  RunAll(actions);
}

void ParkingLot::Tick() {
  Actions actions;
  {
    MutexLock lock(&mu_);
    MonotonicTime now = parts_.clock->Now();
    if (armed_ && *armed_ <= now) armed_.reset();
    while (!due_.empty() && due_.begin()->when <= now) {
      Due due = *due_.begin();
      due_.erase(due_.begin());
      OnDue(due, now, &actions);
    }
    Arm(&actions);
  }
  RunAll(actions);
}

ParkingLot::Stats ParkingLot::stats() const {
  MutexLock lock(&mu_);
  return Stats{parked_, tickets_.size() - parked_, flights_.size(), memory_bytes_};
}

std::vector<ParkingLot::FlightStatus> ParkingLot::flights(size_t max) const {
  std::vector<FlightStatus> out;
  MutexLock lock(&mu_);
  for (const auto& [id, flight] : flights_) {
    if (out.size() == max) break;
    out.push_back({flight->key, flight->waiters.size(), flight->calling, flight->failures});
  }
  return out;
}

ParkingLot::Flight* ParkingLot::FlightOf(const ActorKey& key) {
  auto it = by_key_.find(key);
  if (it != by_key_.end()) return flights_[it->second].get();
  auto flight = std::make_unique<Flight>();
  flight->id = next_id_++;
  flight->key = key;
  Flight* raw = flight.get();
  by_key_[key] = raw->id;
  flights_[raw->id] = std::move(flight);
  return raw;
}

void ParkingLot::Call(Flight* flight, Actions* actions) {
  MonotonicTime now = parts_.clock->Now();
  MonotonicTime latest = now;
  for (const Waiter& waiter : flight->waiters) latest = std::max(latest, waiter.deadline);
  Duration wait = limits_.requests_max == 0 ? Duration::zero()
                                            : std::min<Duration>(latest - now, kCapacityWaitMax);
  flight->calling = true;
  if (!flight->counted) SetWakeUp(flight, now + limits_.lookup_grace);
  actions->push_back([this, id = flight->id, key = flight->key, wait, trace = flight->traceparent] {
    parts_.resolver->Resume(key, wait, trace, [this, id](StatusOr<ActorResolver::Answer> answer) {
      OnAnswer(id, std::move(answer));
    });
  });
}

void ParkingLot::OnAnswer(uint64_t flight_id, StatusOr<ActorResolver::Answer> answer) {
  Actions actions;
  {
    MutexLock lock(&mu_);
    auto it = flights_.find(flight_id);
    if (it == flights_.end()) return;
    Flight* flight = it->second.get();
    flight->calling = false;
    if (answer.ok()) {
      Land(flight, *answer, &actions);
    } else if (IsRetryableResume(answer.status()) && !flight->waiters.empty() &&
               limits_.requests_max > 0) {
      flight->last = answer.status();
      Count(flight, &actions);
      Duration delay = RetryDelay(flight->failures++, parts_.random01(), flight->last);
      SetWakeUp(flight, parts_.clock->Now() + delay);
      EndIfAbandoned(flight);
      if (parts_.on_retry) {
        actions.push_back([this, status = answer.status()] { parts_.on_retry(status); });
      }
    } else {
      Fail(flight, answer.status(), &actions);
    }
    Arm(&actions);
  }
  RunAll(actions);
}

void ParkingLot::Land(Flight* flight, const ActorResolver::Answer& answer, Actions* actions) {
  auto outcome = std::make_shared<ParkOutcome>();
  outcome->kind = ParkOutcome::Kind::kRoute;
  actions->push_back([this, key = flight->key, route = answer.route, outcome] {
    outcome->route = parts_.on_route(key, route);
  });
  std::shared_ptr<WakeReport> report;
  if (answer.woke && !answer.op_id.empty() && !flight->waiters.empty()) {
    report = std::make_shared<WakeReport>();
    actions->push_back([this, key = flight->key, op_id = answer.op_id, report] {
      parts_.resolver->Phases(key, op_id, [report](StatusOr<std::vector<torpor::v1::Phase>> p) {
        report->Set(p.ok() ? *std::move(p) : std::vector<torpor::v1::Phase>());
      });
    });
  }
  bool first = true;
  while (!flight->waiters.empty()) {
    Waiter waiter = Remove(flight, flight->waiters.begin());
    WakeRole role = !answer.woke ? WakeRole::kNone
                    : first      ? WakeRole::kTriggered
                                 : WakeRole::kJoined;
    actions->push_back([done = std::move(waiter.done), outcome, role, deadline = waiter.deadline,
                        report = first ? report : nullptr] {
      ParkOutcome mine = *outcome;
      mine.role = role;
      mine.report = report;
      mine.deadline = deadline;
      done(std::move(mine));
    });
    first = false;
  }
  Erase(flight);
}

void ParkingLot::Fail(Flight* flight, Status status, Actions* actions) {
  while (!flight->waiters.empty()) {
    Waiter waiter = Remove(flight, flight->waiters.begin());
    ParkOutcome outcome{ParkOutcome::Kind::kFailed};
    outcome.status = status;
    actions->push_back([done = std::move(waiter.done), outcome] { done(outcome); });
  }
  Erase(flight);
}

void ParkingLot::Count(Flight* flight, Actions* actions) {
  if (flight->counted || limits_.requests_max == 0) return;
  flight->counted = true;
  size_t kept = 0;
  for (auto it = flight->waiters.begin(); it != flight->waiters.end();) {
    auto next = std::next(it);
    std::string_view cap = CapFor(*flight, it->bytes, kept);
    ++parked_;
    memory_bytes_ += it->bytes;
    if (cap.empty()) {
      ++kept;
    } else {
      Waiter waiter = Remove(flight, it);
      ParkOutcome outcome{ParkOutcome::Kind::kFull};
      outcome.cap = cap;
      outcome.queue_position = static_cast<int>(kept) + 1;
      actions->push_back([done = std::move(waiter.done), outcome] { done(outcome); });
    }
    it = next;
  }
}

std::string_view ParkingLot::CapFor(const Flight&, size_t bytes, size_t already) const {
  if (parked_ >= limits_.requests_max) return "requests";
  if (already >= limits_.per_actor_max) return "per_actor";
  if (memory_bytes_ + bytes > limits_.memory_bytes_max) return "memory";
  return {};
}

ParkingLot::Waiter ParkingLot::Remove(Flight* flight, std::list<Waiter>::iterator it) {
  Waiter waiter = std::move(*it);
  flight->waiters.erase(it);
  tickets_.erase(waiter.ticket);
  due_.erase(Due{waiter.due, waiter.ticket, false});
  if (flight->counted) {
    --parked_;
    memory_bytes_ -= waiter.bytes;
  }
  return waiter;
}

void ParkingLot::EndIfAbandoned(Flight* flight) {
  // A call under way is not worth less because nobody waits: its answer fills the route cache.
  if (flight->waiters.empty() && !flight->calling) Erase(flight);
}

void ParkingLot::Erase(Flight* flight) {
  due_.erase(Due{flight->wake_up, flight->id, true});
  by_key_.erase(flight->key);
  flights_.erase(flight->id);
}

void ParkingLot::SetWakeUp(Flight* flight, MonotonicTime when) {
  due_.erase(Due{flight->wake_up, flight->id, true});
  flight->wake_up = when;
  due_.insert(Due{when, flight->id, true});
}

void ParkingLot::OnDue(const Due& due, MonotonicTime now, Actions* actions) {
  if (due.flight) {
    Flight* flight = flights_.at(due.id).get();
    if (flight->calling) {
      Count(flight, actions);
    } else {
      Call(flight, actions);
    }
    return;
  }
  OnWaiterDue(due.id, now, actions);
}

void ParkingLot::OnWaiterDue(uint64_t ticket, MonotonicTime now, Actions* actions) {
  Flight* flight = tickets_.at(ticket);
  int position = 1;
  auto it = flight->waiters.begin();
  for (; it->ticket != ticket; ++it) ++position;
  if (it->asks_next) {
    Ask(flight, now, actions);
    it->asks_next = false;
    it->due = it->deadline;
    due_.insert(Due{it->due, ticket, false});
    return;
  }
  std::optional<WakeProgress> progress = FreshProgress(*flight, now);
  if (progress && progress->cold && !progress->has_own_budget && now < it->extend_until) {
    it->deadline = std::min(it->extend_until, now + kExtension);
    return SetDue(&*it, now);
  }
  Waiter waiter = Remove(flight, it);
  ParkOutcome outcome{ParkOutcome::Kind::kBudget};
  if (!flight->calling) outcome.status = flight->last;
  outcome.queue_position = position;
  outcome.progress = std::move(progress);
  actions->push_back([done = std::move(waiter.done), outcome] { done(outcome); });
  EndIfAbandoned(flight);
}

void ParkingLot::SetDue(Waiter* waiter, MonotonicTime now) {
  MonotonicTime ask = std::max(waiter->deadline - kAskBefore, now + kAskNotBefore);
  waiter->asks_next = ask < waiter->deadline;
  waiter->due = waiter->asks_next ? ask : waiter->deadline;
  due_.insert(Due{waiter->due, waiter->ticket, false});
}

void ParkingLot::Ask(Flight* flight, MonotonicTime now, Actions* actions) {
  // A lookup that is still young has nothing to tell; waiters with like deadlines share an answer.
  if (!flight->counted || flight->asking || now - flight->progress_at < kAskBefore / 2) return;
  flight->asking = true;
  actions->push_back([this, id = flight->id, key = flight->key] {
    parts_.resolver->Progress(key, [this, id](StatusOr<std::optional<WakeProgress>> progress) {
      OnProgress(id, std::move(progress));
    });
  });
}

void ParkingLot::OnProgress(uint64_t flight_id, StatusOr<std::optional<WakeProgress>> progress) {
  MutexLock lock(&mu_);
  auto it = flights_.find(flight_id);
  if (it == flights_.end()) return;
  Flight* flight = it->second.get();
  flight->asking = false;
  flight->progress_at = parts_.clock->Now();
  flight->progress = progress.ok() ? *std::move(progress) : std::nullopt;
}

std::optional<WakeProgress> ParkingLot::FreshProgress(const Flight& flight,
                                                      MonotonicTime now) const {
  if (!flight.progress || now - flight.progress_at > kProgressGood) return std::nullopt;
  WakeProgress progress = *flight.progress;
  progress.elapsed += now - flight.progress_at;
  return progress;
}

void ParkingLot::Arm(Actions* actions) {
  if (due_.empty()) return;
  MonotonicTime first = due_.begin()->when;
  if (armed_ && *armed_ <= first) return;
  armed_ = first;
  actions->push_back([this, first] { parts_.timer(first, [this] { Tick(); }); });
}

}  // namespace torpor::router
