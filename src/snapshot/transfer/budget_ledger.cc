#include "snapshot/transfer/budget_ledger.h"

#include <algorithm>

#include "base/log.h"

namespace torpor::snapshot {

BudgetLedger::Ticket BudgetLedger::Ask(Urgency urgency, int64_t minimum, MonotonicTime now) {
  Place place;
  place.turn = urgency == Urgency::kUpload ? now + patience_ : now;
  place.ticket = ++last_ticket_;
  place.minimum = std::clamp<int64_t>(minimum, 0, total_);
  queue_.insert(place);
  places_.emplace(place.ticket, place);
  return place.ticket;
}

void BudgetLedger::Withdraw(Ticket ticket) {
  auto it = places_.find(ticket);
  if (it == places_.end()) return;
  queue_.erase(it->second);
  places_.erase(it);
}

std::vector<BudgetLedger::Admitted> BudgetLedger::Admit() {
  std::vector<Admitted> out;
  while (!queue_.empty() && queue_.begin()->minimum <= total_ - reserved_) {
    const Place first = *queue_.begin();
    Withdraw(first.ticket);
    reserved_ += first.minimum;
    out.push_back({first.ticket, first.minimum});
  }
  return out;
}

bool BudgetLedger::TryTake(int64_t amount) {
  if (!queue_.empty() || amount > total_ - reserved_) return false;
  reserved_ += amount;
  return true;
}

void BudgetLedger::Give(int64_t amount) {
  reserved_ -= amount;
  CHECK(reserved_ >= 0);
}

}  // namespace torpor::snapshot
