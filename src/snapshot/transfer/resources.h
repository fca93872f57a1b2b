#pragma once
// What all transfers of one process share: memory, processors, threads for requests.
//
// Thread-safe; outlives every transfer that uses it.

#include <memory>

#include "base/thread_pool.h"
#include "snapshot/transfer/buffers.h"
#include "snapshot/transfer/byte_budget.h"
#include "snapshot/transfer/codecs.h"

namespace torpor::snapshot {

inline constexpr int64_t kMemoryBudgetDefault = int64_t{512} << 20;
inline constexpr int64_t kMemoryBudgetMin = int64_t{64} << 20;
inline constexpr int kZstdLevelDefault = 2;
inline constexpr int kZstdLevelMin = -5;
inline constexpr int kZstdLevelMax = 9;
// Requests of all downloads at once; parts of all uploads at once, which the budget bounds, too.
inline constexpr size_t kFetchesMax = 12;
inline constexpr size_t kSendsMax = 48;

struct ResourceOptions {
  int64_t memory_budget_bytes = kMemoryBudgetDefault;  // zstd contexts included
  int zstd_level = kZstdLevelDefault;
  size_t threads_max = 0;  // that compute; 0 = one per processor
  BudgetMetrics metrics;
};

class Resources {
 public:
  // INVALID_ARGUMENT names the smallest budget when less is asked for, and the levels.
  static StatusOr<std::unique_ptr<Resources>> Create(const ResourceOptions& options, Clock* clock);

  ByteBudget* memory() { return &memory_; }
  BufferPool* buffers() { return &buffers_; }
  Codecs* codecs() { return &codecs_; }
  size_t threads() const { return threads_; }
  ThreadPool* encoders() { return &encoders_; }
  ThreadPool* fetchers() { return &fetchers_; }
  ThreadPool* senders() { return &senders_; }

 private:
  Resources(const ResourceOptions& options, size_t threads, int64_t memory_bytes, Clock* clock);

  const size_t threads_;
  ByteBudget memory_;
  BufferPool buffers_;
  Codecs codecs_;
  // Last, so that they end first.
  ThreadPool encoders_;
  ThreadPool fetchers_;
  ThreadPool senders_;
};

}  // namespace torpor::snapshot
