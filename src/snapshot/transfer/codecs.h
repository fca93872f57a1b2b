#pragma once
// Places at the processors for work on blocks, each with a zstd encoder and decoder: there are as
// many as threads may compute, so the whole mover uses no more processors and contexts than that.
//
// Thread-safe; outlives its places.

#include <memory>
#include <vector>

#include "snapshot/format/tsz_block.h"
#include "snapshot/transfer/byte_budget.h"

namespace torpor::snapshot {

class Codecs {
  struct Pair {
    explicit Pair(int zstd_level) : encoder(zstd_level) {}
    TszBlockEncoder encoder;
    TszBlockDecoder decoder;
  };

 public:
  Codecs(size_t places, int zstd_level, Clock* clock);

  // Belongs to one thread.
  class Place {
   public:
    Place(Codecs* codecs, std::unique_ptr<Pair> pair, ByteBudget::Hold hold)
        : codecs_(codecs), pair_(std::move(pair)), hold_(std::move(hold)) {}
    Place(Place&&) = default;
    Place& operator=(Place&&) = delete;
    ~Place() {
      if (pair_ != nullptr) codecs_->Return(std::move(pair_));
    }
    TszBlockEncoder& encoder() { return pair_->encoder; }
    TszBlockDecoder& decoder() { return pair_->decoder; }

   private:
    Codecs* const codecs_;
    std::unique_ptr<Pair> pair_;
    ByteBudget::Hold hold_;
  };
  // Waits for a place: downloads go first, for a while. Errors are those of transfer.Check().
  StatusOr<Place> Enter(Urgency urgency, const Transfer& transfer) EXCLUDES(mu_);

  // Of one place.
  static int64_t MemoryBytes(int zstd_level);

 private:
  void Return(std::unique_ptr<Pair> pair) EXCLUDES(mu_);

  const int zstd_level_;
  ByteBudget places_;  // counts places instead of bytes
  Mutex mu_;
  std::vector<std::unique_ptr<Pair>> idle_ GUARDED_BY(mu_);
};

}  // namespace torpor::snapshot
