#include "snapshot/transfer/codecs.h"

namespace torpor::snapshot {
namespace {

// A place is free again after milliseconds, so an upload need not wait long for its turn.
constexpr Duration kPatience = std::chrono::milliseconds(100);

}  // namespace

Codecs::Codecs(size_t places, int zstd_level, Clock* clock)
    : zstd_level_(zstd_level), places_(static_cast<int64_t>(places), clock, {}, kPatience) {}

StatusOr<Codecs::Place> Codecs::Enter(Urgency urgency, const Transfer& transfer) {
  ASSIGN_OR_RETURN(ByteBudget::Hold hold, places_.Admit(urgency, 1, transfer));
  std::unique_ptr<Pair> pair;
  {
    MutexLock lock(&mu_);
    if (!idle_.empty()) {
      pair = std::move(idle_.back());
      idle_.pop_back();
    }
  }
  if (pair == nullptr) pair = std::make_unique<Pair>(zstd_level_);
  return Place(this, std::move(pair), std::move(hold));
}

void Codecs::Return(std::unique_ptr<Pair> pair) {
  MutexLock lock(&mu_);
  idle_.push_back(std::move(pair));
}

int64_t Codecs::MemoryBytes(int zstd_level) {
  return TszBlockEncoder::MemoryBytes(zstd_level) + TszBlockDecoder::MemoryBytes();
}

}  // namespace torpor::snapshot
