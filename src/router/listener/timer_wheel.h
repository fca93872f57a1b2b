#pragma once
// Deadlines of many connections at next to no cost: setting one is a few stores, and one that is
// pushed out again and again is moved only when its old time comes. Resolution 20 ms, never early.
//
// Not thread-safe; one wheel per thread. Whoever owns the wheel calls Advance by NextDue.

#include <array>
#include <cstdint>
#include <optional>

#include "base/time.h"

namespace torpor::router {

class TimerWheel {
 public:
  static constexpr Duration kTick = std::chrono::milliseconds(20);

  // Derive from it. Leaves its wheel on destruction.
  class Entry {
   public:
    Entry() = default;
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    virtual ~Entry() { Unlink(); }
    // The time set last has passed. The entry is not in the wheel any more; it may set itself.
    virtual void OnTimer(MonotonicTime now) = 0;

   private:
    friend class TimerWheel;
    void Unlink();
    Entry* next_ = nullptr;
    Entry** link_ = nullptr;  // What points to this entry; null = in no wheel.
    int64_t slot_tick_ = 0;
    MonotonicTime deadline_{};
  };

  explicit TimerWheel(MonotonicTime now) : start_(now) {}
  ~TimerWheel();

  void Set(Entry* entry, MonotonicTime deadline);
  void Cancel(Entry* entry) { entry->Unlink(); }
  void Advance(MonotonicTime now);
  // When Advance has something to look at; nothing when the wheel is empty.
  std::optional<MonotonicTime> NextDue() const;

 private:
  static constexpr int64_t kSlots = 512;
  int64_t TickOf(MonotonicTime t) const { return (t - start_ + kTick - Duration(1)) / kTick; }
  void Link(Entry* entry, int64_t tick);

  const MonotonicTime start_;
  int64_t current_ = 0;  // Every slot up to this tick was handled.
  std::array<Entry*, kSlots> slots_{};
};

}  // namespace torpor::router
