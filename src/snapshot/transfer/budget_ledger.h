#pragma once
// Who may hold how much of one budget, and whose turn it is. Decides only: no locks, no waiting, no
// clock of its own (byte_budget.h has those). Belongs to one thread, or to one mutex.
//
// Everybody asks once, for the minimum with which the work surely ends, and waits for nothing after
// that; more is taken only when it is there and nobody waits. So what was admitted always ends, and
// what waits is admitted in the end.
//
// The order is by time of arrival, but an upload counts as if it had come `patience` later: so a
// download overtakes uploads, and none of them for ever. Whoever is first and does not fit holds up
// the others, or a large one would starve. A minimum above the whole budget is cut to it: such work
// runs alone.

#include <cstdint>
#include <set>
#include <unordered_map>
#include <vector>

#include "base/time.h"
#include "snapshot/transfer/transfer.h"

namespace torpor::snapshot {

class BudgetLedger {
 public:
  using Ticket = uint64_t;

  BudgetLedger(int64_t total, Duration patience) : total_(total), patience_(patience) {}

  Ticket Ask(Urgency urgency, int64_t minimum, MonotonicTime now);
  // Gives up a ticket that waits.
  void Withdraw(Ticket ticket);
  struct Admitted {
    Ticket ticket = 0;
    int64_t amount = 0;  // that it holds now; the minimum, cut to the budget
  };
  // Those whose turn has come, in their order.
  std::vector<Admitted> Admit();

  // More for someone who was admitted; false when it is not there or somebody waits.
  bool TryTake(int64_t amount);
  void Give(int64_t amount);

  int64_t total() const { return total_; }
  int64_t reserved() const { return reserved_; }
  size_t waiting() const { return queue_.size(); }

 private:
  struct Place {
    MonotonicTime turn;
    Ticket ticket = 0;
    int64_t minimum = 0;
    bool operator<(const Place& other) const {
      return turn != other.turn ? turn < other.turn : ticket < other.ticket;
    }
  };

  const int64_t total_;
  const Duration patience_;
  int64_t reserved_ = 0;
  Ticket last_ticket_ = 0;
  std::set<Place> queue_;
  std::unordered_map<Ticket, Place> places_;
};

}  // namespace torpor::snapshot
