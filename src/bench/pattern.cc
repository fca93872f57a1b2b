#include "bench/pattern.h"

#include <thread>

#include "base/uuid.h"

namespace torpor::bench {

StatusOr<std::unique_ptr<Pattern>> MakePattern(PatternContext context) {
  using Make = std::unique_ptr<Pattern> (*)(PatternContext);
  static const std::map<std::string, Make> makers = {
      {"cycle", MakeUsersPattern},         {"durdir", MakeUsersPattern},
      {"counter_burst", MakeUsersPattern}, {"storm", MakeStormPattern},
      {"inflight", MakeInflightPattern},   {"ingress", MakeIngressPattern},
      {"idle", MakeIdlePattern},           {"rounds", MakeRoundsPattern},
      {"spawn", MakeSpawnPattern}};
  auto found = makers.find(context.world->scenario.pattern);
  if (found == makers.end()) {
    return Error(Code::kFailedPrecondition, "NOT_IMPLEMENTED",
                 "nothing drives the pattern " + context.world->scenario.pattern);
  }
  return found->second(std::move(context));
}

void OnThreads(int64_t count, const std::function<void(int64_t)>& work) {
  std::vector<std::thread> threads;
  for (int64_t i = 0; i < count; ++i) threads.emplace_back([&work, i] { work(i); });
  for (std::thread& thread : threads) thread.join();
}

StatusOr<std::vector<std::pair<std::string, ActorView>>> StartActors(const PatternContext& context,
                                                                     int64_t count) {
  constexpr int64_t kAtOnce = 4;
  std::vector<std::pair<std::string, ActorView>> actors(static_cast<size_t>(count));
  std::atomic<int64_t> next{0};
  Mutex mu;
  Status first;
  OnThreads(std::min(count, kAtOnce), [&](int64_t) {
    for (;;) {
      const int64_t i = next++;
      if (i >= count || context.stopped()) return;
      auto& [name, view] = actors[static_cast<size_t>(i)];
      name = "sb-" + IdSource::Real()->NewUuid();
      context.world->Note(name);
      Outcome made = context.world->control->Create(name);
      context.recorder->Add("CreateActor", made, true);
      if (made.ok()) {
        made = context.world->control->Resume(name, &view);
        context.recorder->Add("ResumeActorColdStart", made, true);
      }
      if (made.ok()) continue;
      MutexLock lock(&mu);
      if (first.ok()) first = Annotate(made.status, name);
      next = count;
    }
  });
  RETURN_IF_ERROR(first);
  if (context.stopped()) return Error(Code::kCancelled, "CANCELLED", "stopped by a signal");
  return actors;
}

}  // namespace torpor::bench
