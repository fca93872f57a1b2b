#include "router/listener/timer_wheel.h"

#include <algorithm>

namespace torpor::router {

void TimerWheel::Entry::Unlink() {
  if (link_ == nullptr) return;
  *link_ = next_;
  if (next_ != nullptr) next_->link_ = link_;
  next_ = nullptr;
  link_ = nullptr;
}

TimerWheel::~TimerWheel() {
  for (Entry*& head : slots_) {
    while (head != nullptr) head->Unlink();
  }
}

void TimerWheel::Link(Entry* entry, int64_t tick) {
  entry->Unlink();
  Entry** head = &slots_[static_cast<size_t>(tick % kSlots)];
  entry->slot_tick_ = tick;
  entry->next_ = *head;
  entry->link_ = head;
  if (*head != nullptr) (*head)->link_ = &entry->next_;
  *head = entry;
}

void TimerWheel::Set(Entry* entry, MonotonicTime deadline) {
  entry->deadline_ = deadline;
  int64_t tick = std::clamp(TickOf(deadline), current_ + 1, current_ + kSlots - 1);
  // Linked no later than needed: its slot will move it on.
  if (entry->link_ != nullptr && entry->slot_tick_ <= tick) return;
  Link(entry, tick);
}

void TimerWheel::Advance(MonotonicTime now) {
  // Rounds down: a slot is handled once its whole tick has passed.
  int64_t until = (now - start_) / kTick;
  // After a long stop every slot is visited once.
  if (until - current_ > kSlots) current_ = until - kSlots;
  while (current_ < until) {
    ++current_;
    Entry* list = slots_[static_cast<size_t>(current_ % kSlots)];
    slots_[static_cast<size_t>(current_ % kSlots)] = nullptr;
    if (list != nullptr) list->link_ = &list;
    while (list != nullptr) {
      Entry* entry = list;
      entry->Unlink();
      if (entry->deadline_ > now) {
        Set(entry, entry->deadline_);
      } else {
        entry->OnTimer(now);
      }
    }
  }
}

std::optional<MonotonicTime> TimerWheel::NextDue() const {
  for (int64_t tick = current_ + 1; tick <= current_ + kSlots; ++tick) {
    if (slots_[static_cast<size_t>(tick % kSlots)] != nullptr) return start_ + tick * kTick;
  }
  return std::nullopt;
}

}  // namespace torpor::router
