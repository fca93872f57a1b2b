#include "router/admit/rate_limit.h"

#include <algorithm>

namespace torpor::router {
namespace {

constexpr Duration kSecond = std::chrono::seconds(1);

Duration IntervalOf(int64_t per_second) {
  return per_second <= 0 ? Duration::zero() : kSecond / per_second;
}

}  // namespace

RateLimit::RateLimit(int64_t per_second, size_t keys_max)
    : interval_(IntervalOf(per_second)),
      capacity_(interval_ * std::max<int64_t>(per_second, 1)),
      per_stripe_max_(std::max<size_t>(1, keys_max / kStripes)) {}

std::optional<Duration> RateLimit::Take(std::string_view key, MonotonicTime now) {
  // The low bits choose the place inside the stripe's table.
  size_t hash = std::hash<std::string_view>()(key);
  Stripe& stripe = stripes_[(hash >> 32) % kStripes];
  MutexLock lock(&stripe.mu);
  Bucket& bucket = BucketOf(&stripe, key, now);
  MonotonicTime full_at = std::max(bucket.full_at, now) + interval_;
  Duration missing = full_at - now;
  if (missing > capacity_) return missing - capacity_;
  bucket.full_at = full_at;
  return std::nullopt;
}

void RateLimit::Stripe::ForgetLast() {
  index.erase(buckets.back().key);
  buckets.pop_back();
}

RateLimit::Bucket& RateLimit::BucketOf(Stripe* stripe, std::string_view key, MonotonicTime now) {
  std::list<Bucket>& buckets = stripe->buckets;
  auto found = stripe->index.find(key);
  if (found != stripe->index.end()) {
    buckets.splice(buckets.begin(), buckets, found->second);
    return buckets.front();
  }
  // A full bucket is what a new one would be. Two for each new one, so that they become fewer.
  for (int i = 0; i < 2 && !buckets.empty() && buckets.back().full_at <= now; ++i) {
    stripe->ForgetLast();
  }
  if (buckets.size() >= per_stripe_max_) stripe->ForgetLast();
  buckets.push_front(Bucket{std::string(key), now});
  stripe->index[buckets.front().key] = buckets.begin();
  return buckets.front();
}

size_t RateLimit::size() const {
  size_t out = 0;
  for (const Stripe& stripe : stripes_) {
    MutexLock lock(&stripe.mu);
    out += stripe.buckets.size();
  }
  return out;
}

}  // namespace torpor::router
