#include "snapshot/transfer/resources.h"

#include "base/quantity.h"
#include "model/reasons.h"

namespace torpor::snapshot {
namespace {

// More add little: the disk and the network are slower than that many processors.
constexpr int64_t kThreadsMax = 32;
// Contexts of zstd may take this share of the memory; fewer threads compute when it is small.
constexpr int64_t kContextShare = 4;

}  // namespace

StatusOr<std::unique_ptr<Resources>> Resources::Create(const ResourceOptions& options,
                                                       Clock* clock) {
  if (options.memory_budget_bytes < kMemoryBudgetMin) {
    return Fail(reasons::kFieldInvalid, fmt::format("memory-budget is {}; at least {} are needed",
                                                    FormatBytes(options.memory_budget_bytes),
                                                    FormatBytes(kMemoryBudgetMin)));
  }
  if (options.zstd_level < kZstdLevelMin || options.zstd_level > kZstdLevelMax) {
    return Fail(reasons::kFieldInvalid, fmt::format("snapshot-zstd-level must be from {} to {}",
                                                    kZstdLevelMin, kZstdLevelMax));
  }
  const int64_t context = Codecs::MemoryBytes(options.zstd_level);
  const auto wanted = static_cast<int64_t>(options.threads_max > 0 ? options.threads_max : Cores());
  const int64_t fit = options.memory_budget_bytes / kContextShare / context;
  const int64_t threads = std::max<int64_t>(1, std::min({wanted, fit, kThreadsMax}));
  return std::unique_ptr<Resources>(new Resources(options, static_cast<size_t>(threads),
                                                  options.memory_budget_bytes - threads * context,
                                                  clock));
}

Resources::Resources(const ResourceOptions& options, size_t threads, int64_t memory_bytes,
                     Clock* clock)
    : threads_(threads),
      memory_(memory_bytes, clock, options.metrics),
      buffers_(&memory_),
      codecs_(threads, options.zstd_level, clock),
      encoders_(threads),
      fetchers_(kFetchesMax),
      senders_(kSendsMax) {}

}  // namespace torpor::snapshot
