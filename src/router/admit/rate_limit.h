#pragma once
// Requests per second, counted by key: one token bucket per key, which holds what one second
// brings. Memory is bounded: buckets that are full again are forgotten, and beyond `keys_max` those
// that were not used for longest.
//
// Thread-safe. Keys are spread over several locks; none is taken while the limit is off.

#include <array>
#include <list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/sync.h"
#include "base/time.h"

namespace torpor::router {

class RateLimit {
 public:
  // `per_second` from 1 to 1,000,000; 0 = off.
  RateLimit(int64_t per_second, size_t keys_max);

  bool on() const { return interval_ > Duration::zero(); }
  // Takes a token of `key`; without one, how long it takes until there is one. Call only when on.
  std::optional<Duration> Take(std::string_view key, MonotonicTime now);
  // How many buckets are remembered.
  size_t size() const;

 private:
  // Tokens are kept as time: the bucket lacks one for each interval until `full_at`.
  struct Bucket {
    std::string key;
    MonotonicTime full_at;
  };
  struct Stripe {
    mutable Mutex mu;
    std::list<Bucket> buckets GUARDED_BY(mu);  // Most recently used first.
    // The keys lie in the buckets.
    std::unordered_map<std::string_view, std::list<Bucket>::iterator> index GUARDED_BY(mu);
    void ForgetLast() REQUIRES(mu);
  };
  static constexpr size_t kStripes = 16;

  Bucket& BucketOf(Stripe* stripe, std::string_view key, MonotonicTime now) REQUIRES(stripe->mu);

  const Duration interval_;  // Between two tokens; 0 = off.
  const Duration capacity_;  // Of a whole bucket.
  const size_t per_stripe_max_;
  std::array<Stripe, kStripes> stripes_;
};

}  // namespace torpor::router
