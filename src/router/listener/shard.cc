#include "router/listener/shard.h"

#include <sys/random.h>

#include "base/log.h"
#include "router/listener/client_connection.h"

namespace torpor::router {
namespace {

uint64_t Rotl(uint64_t x, int k) { return (x << k) | (x >> (64 - k)); }

}  // namespace

FastRandom::FastRandom() {
  CHECK(getrandom(state_, sizeof(state_), 0) == static_cast<ssize_t>(sizeof(state_)));
}

uint64_t FastRandom::Next() {
  uint64_t result = Rotl(state_[1] * 5, 7) * 9;
  uint64_t t = state_[1] << 17;
  state_[2] ^= state_[0];
  state_[3] ^= state_[1];
  state_[1] ^= state_[2];
  state_[0] ^= state_[3];
  state_[2] ^= t;
  state_[3] = Rotl(state_[3], 45);
  return result;
}

std::string FastRandom::Hex(int words) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string out(static_cast<size_t>(words) * 16, '0');
  for (int w = 0; w < words; ++w) {
    uint64_t value = Next();
    for (int i = 0; i < 16; ++i) {
      out[static_cast<size_t>(w * 16 + i)] = kDigits[value & 15];
      value >>= 4;
    }
  }
  return out;
}

bool AddressCounter::Add(const std::string& address) {
  MutexLock lock(&mu_);
  size_t& count = counts_[address];
  if (count >= max_) return false;
  ++count;
  return true;
}

void AddressCounter::Remove(const std::string& address) {
  MutexLock lock(&mu_);
  auto it = counts_.find(address);
  if (--it->second == 0) counts_.erase(it);
}

std::vector<std::shared_ptr<ClientConnection>> ConnectionsOf(Shard* shard) {
  std::vector<std::shared_ptr<ClientConnection>> out;
  for (ClientConnection* connection : shard->connections) {
    out.push_back(connection->shared_from_this());
  }
  return out;
}

void Shard::SetTimer(TimerWheel::Entry* entry, MonotonicTime deadline) {
  wheel.Set(entry, deadline);
  if (!wheel_armed || deadline < *wheel_armed) ArmWheel();
}

void Shard::ArmWheel() {
  std::optional<MonotonicTime> due = wheel.NextDue();
  if (!due || (wheel_armed && *wheel_armed <= *due)) return;
  wheel_armed = due;
  wheel_timer.expires_at(*due);
  wheel_timer.async_wait([this](const ErrorCode& error) {
    if (error) return;  // Armed anew for an earlier time.
    wheel_armed.reset();
    wheel.Advance(shared->clock->Now());
    ArmWheel();
  });
}

}  // namespace torpor::router
