#include "router/listener/doors.h"

#include <algorithm>

#include "base/log.h"
#include "router/listener/client_connection.h"
#include "router/listener/exchange.h"
#include "router/listener/shard.h"

namespace torpor::router {
namespace {

// The door takes a router that did not answer for so long for a silent one.
constexpr Duration kLineDelayMax = std::chrono::seconds(1);
constexpr Duration kFirstRetry = std::chrono::milliseconds(100);
constexpr Duration kRetryMax = std::chrono::seconds(2);
constexpr int kFailuresMax = 30;  // Then the next route through the door begins anew.
constexpr Duration kWantedFor = std::chrono::minutes(10);

Duration RetryAfter(int failures) {
  return std::min<Duration>(kRetryMax, kFirstRetry * (1 << std::min(failures, 5)));
}

// What a drain asks of one thread: no idle connection, and when its oldest request began.
MonotonicTime DrainShard(Shard* shard, const ActivityCell* cell) {
  shard->pool.CloseIdleOf(cell->uid(), cell->generation());
  MonotonicTime oldest = MonotonicTime::max();
  for (const auto& connection : ConnectionsOf(shard)) {
    std::shared_ptr<Exchange> exchange = connection->exchange();
    if (exchange == nullptr || !exchange->Counts(cell)) continue;
    oldest = std::min(oldest, exchange->started());
    exchange->OnDrain();
  }
  return oldest;
}

}  // namespace

void Doors::Want(const std::string& door) {
  net::post(*parts_.io, [this, door] {
    if (closed_) return;
    Door& entry = doors_[door];
    entry.wanted = parts_.clock->Now();
    if (entry.link == nullptr && entry.retry == nullptr) Connect(door, &entry);
  });
}

void Doors::Changed(const std::shared_ptr<ActivityCell>& cell) {
  net::post(*parts_.io, [this, cell] {
    Activation activation(cell->uid(), cell->generation());
    auto it = drains_.find(activation);
    if (it != drains_.end() && it->second.shards_left == 0) Report(activation, &it->second);
  });
}

void Doors::Close() {
  closed_ = true;
  for (auto& [name, door] : doors_) {
    if (door.link != nullptr) door.link->Close();
  }
  doors_.clear();
  drains_.clear();
}

std::vector<Doors::DoorStatus> Doors::status() const {
  std::vector<DoorStatus> out;
  for (const auto& [name, door] : doors_) {
    DoorStatus status{name, door.open, 0};
    for (const auto& [activation, drain] : drains_) status.drains += drain.door == name ? 1 : 0;
    out.push_back(std::move(status));
  }
  return out;
}

void Doors::Connect(const std::string& name, Door* door) {
  door->open = false;
  door->link = std::make_shared<ControlLink>(*parts_.io, name, this);
  door->link->Open(parts_.router_id);
}

void Doors::Retry(const std::string& name) {
  auto it = doors_.find(name);
  if (it == doors_.end()) return;
  it->second.retry.reset();
  if (it->second.failures > kFailuresMax || parts_.clock->Now() - it->second.wanted > kWantedFor) {
    doors_.erase(it);
    return;
  }
  Connect(name, &it->second);
}

void Doors::OnControlOpen(ControlLink* link) {
  Door& door = doors_[link->door()];
  door.open = true;
  door.failures = 0;
}

void Doors::OnControlLost(ControlLink* link) {
  const std::string name = link->door();
  auto it = doors_.find(name);
  if (it == doors_.end() || it->second.link.get() != link) return;
  Door& door = it->second;
  if (door.open) {
    LogInfo("control connection to a door lost", {{"door", name}});
    std::vector<Activation> ended;
    for (auto& [activation, drain] : drains_) {
      if (drain.door != name) continue;
      // Whether it goes on is the door's to say, when it is asked for a connection.
      drain.cell->ServesAgain(drain.seq);
      ended.push_back(activation);
    }
    for (const Activation& activation : ended) EndDrain(activation, DrainResult::kLost);
    parts_.on_lost(name);
  }
  door.open = false;
  door.link.reset();
  door.retry = std::make_unique<SteadyTimer>(parts_.io->get_executor());
  door.retry->expires_after(RetryAfter(door.failures++));
  door.retry->async_wait([this, name](const ErrorCode& error) {
    if (!error) Retry(name);
  });
}

void Doors::OnControlLine(ControlLink* link, const torpor::v1::DoorLine& line) {
  if (line.has_drain()) return StartDrain(link, line.drain());
  if (line.has_undrain()) {
    const auto& undrain = line.undrain();
    if (auto cell = parts_.activity->Find(undrain.uid(), undrain.gen())) {
      cell->set_phase(ActivityCell::kServing);
    }
    return EndDrain({undrain.uid(), undrain.gen()}, DrainResult::kCalledOff);
  }
  if (!line.has_gone()) return;
  const auto& gone = line.gone();
  auto cell = parts_.activity->Find(gone.uid(), gone.gen());
  if (cell != nullptr) {
    cell->set_phase(gone.reason() == "captured" ? ActivityCell::kAsleep : ActivityCell::kEnded);
    parts_.on_every_shard(
        [cell](Shard* shard) { shard->pool.CloseIdleOf(cell->uid(), cell->generation()); });
  }
  EndDrain({gone.uid(), gone.gen()}, DrainResult::kCut);
}

void Doors::StartDrain(ControlLink* link, const torpor::v1::DoorDrain& line) {
  Activation activation(line.uid(), line.gen());
  Drain drain;
  drain.door = link->door();
  drain.seq = std::max<int64_t>(1, line.seq());
  drain.cell = parts_.activity->Find(line.uid(), line.gen());
  drain.began = parts_.clock->Now();
  drain.oldest = MonotonicTime::max();
  if (drain.cell == nullptr) {
    torpor::v1::DoorLine answer;
    answer.mutable_drained()->set_uid(line.uid());
    answer.mutable_drained()->set_gen(line.gen());
    answer.mutable_drained()->set_seq(line.seq());
    return link->Send(answer);
  }
  // A pause that may be called off closes nothing in use. Any other begins to when its grace is
  // over, which began when the door wrote the line.
  bool may_be_called_off = line.why() == "idle" || line.why() == "pressure";
  Duration grace = std::chrono::milliseconds(line.grace_ms());
  drain.cell->set_cut_after(may_be_called_off
                                ? MonotonicTime::max()
                                : drain.began + grace - std::min(grace, kLineDelayMax));
  drain.cell->set_was_cut(false);
  drain.cell->set_phase(drain.seq);
  drain.shards_left = parts_.shards;
  drains_[activation] = drain;
  parts_.on_every_shard([this, activation, seq = drain.seq, cell = drain.cell](Shard* shard) {
    MonotonicTime oldest = DrainShard(shard, cell.get());
    net::post(*parts_.io,
              [this, activation, seq, oldest] { OnShardReady(activation, seq, oldest); });
  });
}

void Doors::OnShardReady(const Activation& activation, int64_t seq, MonotonicTime oldest) {
  auto it = drains_.find(activation);
  if (it == drains_.end() || it->second.seq != seq) return;
  it->second.oldest = std::min(it->second.oldest, oldest);
  if (--it->second.shards_left == 0) Report(activation, &it->second);
}

void Doors::Report(const Activation& activation, Drain* drain) {
  // In this order: an answer that begins between the two is counted as a request once more.
  int streams = drain->cell->streams();
  int open = drain->cell->open();
  if (open == drain->told_open && streams == drain->told_streams) return;
  auto it = doors_.find(drain->door);
  if (it == doors_.end() || it->second.link == nullptr) return;
  torpor::v1::DoorLine line;
  if (open == 0) {
    line.mutable_drained()->set_uid(activation.first);
    line.mutable_drained()->set_gen(activation.second);
    line.mutable_drained()->set_seq(drain->seq);
  } else {
    torpor::v1::DoorBusy* busy = line.mutable_busy();
    busy->set_uid(activation.first);
    busy->set_gen(activation.second);
    busy->set_seq(drain->seq);
    busy->set_inflight(std::max(0, open - streams));
    busy->set_streams(std::min(open, streams));
    MonotonicTime now = parts_.clock->Now();
    if (drain->oldest < now) {
      busy->set_oldest_ms(
          std::chrono::duration_cast<std::chrono::milliseconds>(now - drain->oldest).count());
    }
  }
  if (open == 0 && drain->told_open != 0) {
    parts_.metrics->Drained(drain->cell->was_cut() ? DrainResult::kCut : DrainResult::kDrained,
                            parts_.clock->Now() - drain->began);
  }
  drain->told_open = open;
  drain->told_streams = streams;
  it->second.link->Send(line);
}

void Doors::EndDrain(const Activation& activation, DrainResult result) {
  auto it = drains_.find(activation);
  if (it == drains_.end()) return;
  // One that drained was counted then.
  if (it->second.told_open != 0) {
    parts_.metrics->Drained(result, parts_.clock->Now() - it->second.began);
  }
  drains_.erase(it);
}

}  // namespace torpor::router
