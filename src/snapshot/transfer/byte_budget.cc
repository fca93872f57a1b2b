#include "snapshot/transfer/byte_budget.h"

namespace torpor::snapshot {
namespace {

// How soon one that waits notices that its operation was cancelled.
constexpr auto kCheckEvery = std::chrono::milliseconds(50);

const char* NameOf(Urgency urgency) {
  return urgency == Urgency::kDownload ? "download" : "upload";
}

}  // namespace

BudgetMetrics::BudgetMetrics(MetricRegistry* registry)
    : reserved(registry->Gauge("torpor_mover_memory_reserved_bytes",
                               "Memory that transfers hold of the budget.")),
      holders(registry->Gauge("torpor_mover_memory_holders", "Transfers that hold memory.",
                              {"direction"})),
      waiting(registry->Gauge("torpor_mover_memory_waiting", "Transfers that wait for memory.",
                              {"direction"})),
      wait_seconds(registry->Histogram("torpor_mover_memory_wait_seconds",
                                       "How long transfers waited for memory.", {"direction"})),
      alone(registry->Counter("torpor_mover_memory_alone_total",
                              "Transfers that needed the whole budget.", {"direction"})) {}

ByteBudget::Hold& ByteBudget::Hold::operator=(Hold&& other) noexcept {
  if (this == &other) return *this;
  Reset();
  budget_ = std::exchange(other.budget_, nullptr);
  urgency_ = other.urgency_;
  bytes_ = std::exchange(other.bytes_, 0);
  return *this;
}

bool ByteBudget::Hold::TryGrow(int64_t bytes) {
  if (!budget_->TryTake(bytes)) return false;
  bytes_ += bytes;
  return true;
}

void ByteBudget::Hold::Shrink(int64_t bytes) {
  bytes = std::min(bytes, bytes_);
  bytes_ -= bytes;
  budget_->Give(bytes);
}

bool ByteBudget::Hold::Wanted() const { return budget_->waiting() > 0; }

void ByteBudget::Hold::Reset() {
  if (budget_ == nullptr) return;
  Shrink(bytes_);
  budget_->metrics_.holders.Add({NameOf(urgency_)}, -1);
  budget_ = nullptr;
}

StatusOr<ByteBudget::Hold> ByteBudget::Admit(Urgency urgency, int64_t minimum,
                                             const Transfer& transfer) {
  RETURN_IF_ERROR(transfer.Check());
  const LabelValues direction = {NameOf(urgency)};
  const MonotonicTime begin = clock_->Now();
  metrics_.waiting.Add(direction, 1);
  Waiter waiter;
  Status status;
  {
    MutexLock lock(&mu_);
    const BudgetLedger::Ticket ticket = ledger_.Ask(urgency, minimum, begin);
    waiters_[ticket] = &waiter;
    AdmitWaiters();
    while (waiter.bytes < 0 && status.ok()) {
      waiter.admitted.WaitUntil(&mu_, std::chrono::steady_clock::now() + kCheckEvery);
      if (waiter.bytes < 0) status = transfer.Check();
    }
    if (!status.ok()) {
      waiters_.erase(ticket);
      ledger_.Withdraw(ticket);
      AdmitWaiters();  // it may have held up others
    }
  }
  metrics_.waiting.Add(direction, -1);
  metrics_.wait_seconds.Observe(direction, clock_->Now() - begin);
  RETURN_IF_ERROR(status);
  if (minimum > waiter.bytes) metrics_.alone.Add(direction);
  metrics_.holders.Add(direction, 1);
  Hold hold;
  hold.budget_ = this;
  hold.urgency_ = urgency;
  hold.bytes_ = waiter.bytes;
  return hold;
}

void ByteBudget::AdmitWaiters() {
  for (const BudgetLedger::Admitted& admitted : ledger_.Admit()) {
    auto it = waiters_.find(admitted.ticket);
    it->second->bytes = admitted.amount;
    it->second->admitted.Signal();
    waiters_.erase(it);
  }
  metrics_.reserved.Set({}, static_cast<double>(ledger_.reserved()));
}

bool ByteBudget::TryTake(int64_t bytes) {
  MutexLock lock(&mu_);
  const bool taken = ledger_.TryTake(bytes);
  if (taken) metrics_.reserved.Set({}, static_cast<double>(ledger_.reserved()));
  return taken;
}

void ByteBudget::Give(int64_t bytes) {
  MutexLock lock(&mu_);
  ledger_.Give(bytes);
  AdmitWaiters();
}

int64_t ByteBudget::reserved() const {
  MutexLock lock(&mu_);
  return ledger_.reserved();
}

size_t ByteBudget::waiting() const {
  MutexLock lock(&mu_);
  return ledger_.waiting();
}

}  // namespace torpor::snapshot
