#include "bench/open_loop.h"

#include <cmath>
#include <thread>

#include "base/sync.h"

namespace torpor::bench {

LoadResult RunLoad(const LoadPlan& plan, const SendOne& send,
                   const std::function<bool()>& stopped) {
  constexpr auto kLate = std::chrono::milliseconds(10);
  LoadResult result;
  Mutex mu;
  const MonotonicTime begin = Clock::Real()->Now();
  const MonotonicTime end = begin + plan.duration;
  auto due_at = [&](int64_t number) {
    return begin + std::chrono::duration_cast<Duration>(
                       std::chrono::duration<double>(static_cast<double>(number) / plan.rate));
  };
  auto serve = [&](int64_t connection) {
    LoadResult own;
    for (int64_t number = connection; !stopped(); number += plan.connections) {
      MonotonicTime due = Clock::Real()->Now();
      if (due >= end) break;
      if (plan.rate > 0) {
        due = due_at(number);
        if (due >= end) break;
        const bool free = Clock::Real()->Now() < due;
        std::this_thread::sleep_until(due);
        if (free && Clock::Real()->Now() - due > kLate) ++own.late;
      }
      ++own.sent;
      Outcome outcome = send(connection, number);
      if (outcome.ok()) {
        own.ms.push_back(ToMs(Clock::Real()->Now() - due));
        continue;
      }
      ++own.failed;
      if (outcome.unexplained) ++own.unexplained;
      if (own.first_failure.empty()) own.first_failure = std::string(outcome.status.message());
    }
    MutexLock lock(&mu);
    result.sent += own.sent;
    result.failed += own.failed;
    result.late += own.late;
    result.unexplained += own.unexplained;
    if (result.first_failure.empty()) result.first_failure = own.first_failure;
    result.ms.insert(result.ms.end(), own.ms.begin(), own.ms.end());
  };
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < plan.connections; ++i) threads.emplace_back(serve, i);
  for (std::thread& thread : threads) thread.join();
  result.seconds = ToMs(Clock::Real()->Now() - begin) / 1000;
  result.due =
      plan.rate > 0 ? static_cast<int64_t>(plan.rate * ToMs(plan.duration) / 1000) : result.sent;
  return result;
}

bool Meets(const LoadResult& result, const Objective& objective) {
  if (result.sent == 0) return false;
  const auto sent = static_cast<double>(result.sent);
  return sent >= objective.sent * static_cast<double>(result.due) &&
         static_cast<double>(result.ms.size()) >= objective.success * sent &&
         Summarize(result.ms).p95 <= objective.p95_ms;
}

double SearchRate(double first, const std::function<bool(double)>& try_rate) {
  constexpr double kPrecise = 1.05;
  double good = 0, bad = 0;
  for (double rate = first; bad == 0; rate *= 2) (try_rate(rate) ? good : bad) = rate;
  if (good == 0) return 0;
  while (bad / good > kPrecise) {
    const double middle = std::sqrt(good * bad);
    (try_rate(middle) ? good : bad) = middle;
  }
  return good;
}

}  // namespace torpor::bench
