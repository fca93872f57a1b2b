#pragma once
// One byte budget for everything that transfers hold in memory (budget_ledger.h has the rules).
//
//   ASSIGN_OR_RETURN(ByteBudget::Hold hold, budget.Admit(Urgency::kUpload, minimum, transfer));
//   if (hold.TryGrow(part_bytes)) ...   // work with more memory
//
// Thread-safe; outlives its holds. Units are bytes, or whatever the total counts: the places at the
// processors are a budget, too (codecs.h).

#include <memory>

#include "base/metrics.h"
#include "base/status.h"
#include "base/sync.h"
#include "snapshot/transfer/budget_ledger.h"
#include "snapshot/transfer/transfer.h"

namespace torpor::snapshot {

// How long downloads may overtake an upload that waits.
inline constexpr Duration kUploadPatience = std::chrono::seconds(15);

// Families with the label `direction`: download or upload. Default-constructed ones count nothing.
struct BudgetMetrics {
  BudgetMetrics() = default;
  explicit BudgetMetrics(MetricRegistry* registry);  // of the mover
  GaugeFamily reserved;                              // without label
  GaugeFamily holders;
  GaugeFamily waiting;
  HistogramFamily wait_seconds;
  CounterFamily alone;  // admitted with the whole budget
};

class ByteBudget {
 public:
  ByteBudget(int64_t total, Clock* clock, BudgetMetrics metrics = {},
             Duration patience = kUploadPatience)
      : total_(total), clock_(clock), metrics_(std::move(metrics)), ledger_(total, patience) {}

  // What one piece of work holds; given back on destruction. Belongs to one thread at a time.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept { *this = std::move(other); }
    Hold& operator=(Hold&& other) noexcept;
    ~Hold() { Reset(); }

    // False when the bytes are not there, or somebody waits for them.
    bool TryGrow(int64_t bytes);
    void Shrink(int64_t bytes);
    void Reset();
    // Somebody waits, so what is not needed just now should be given back.
    bool Wanted() const;
    int64_t bytes() const { return bytes_; }

   private:
    friend class ByteBudget;
    ByteBudget* budget_ = nullptr;
    Urgency urgency_ = Urgency::kUpload;
    int64_t bytes_ = 0;
  };

  // Waits for its turn; holds the minimum then, or the whole budget when that is less. Errors are
  // those of transfer.Check(). The caller holds nothing of this budget yet.
  StatusOr<Hold> Admit(Urgency urgency, int64_t minimum, const Transfer& transfer) EXCLUDES(mu_);

  int64_t total() const { return total_; }
  int64_t reserved() const EXCLUDES(mu_);
  size_t waiting() const EXCLUDES(mu_);

 private:
  struct Waiter {
    CondVar admitted;
    int64_t bytes = -1;  // -1 = it waits
  };

  bool TryTake(int64_t bytes) EXCLUDES(mu_);
  void Give(int64_t bytes) EXCLUDES(mu_);
  void AdmitWaiters() REQUIRES(mu_);

  const int64_t total_;
  Clock* const clock_;
  const BudgetMetrics metrics_;
  mutable Mutex mu_;
  BudgetLedger ledger_ GUARDED_BY(mu_);
  std::unordered_map<BudgetLedger::Ticket, Waiter*> waiters_ GUARDED_BY(mu_);
};

}  // namespace torpor::snapshot
