#pragma once
// What a run does to its Torpor: one implementation per value of the knob `pattern`.

#include <functional>
#include <memory>

#include "bench/actor_control.h"
#include "bench/recorder.h"
#include "bench/world.h"

namespace torpor::bench {

// What a pattern works with; everything outlives it.
struct PatternContext {
  World* world = nullptr;
  Recorder* recorder = nullptr;
  std::function<void(Duration)> sleep;  // returns early when the run is to stop
  std::function<bool()> stopped;
  std::function<void(const std::string& line)> say;
};

// Called with an actor while it runs. Not thread-safe: by one caller only.
using WhileRunning = std::function<void(const ActorView&)>;

// Belongs to one thread; may use threads of its own inside a call.
class Pattern {
 public:
  virtual ~Pattern() = default;
  // Makes actors and warms them up. `running` is called once if there is an actor of the gvisor
  // class whose sandbox can be measured bare; may be null.
  virtual Status SetUp(const WhileRunning& running) = 0;
  // Begins the measured window, makes the load, and notes what came of it in the recorder.
  virtual Status Run() = 0;
};

// For a scenario that passed CheckRunnable.
StatusOr<std::unique_ptr<Pattern>> MakePattern(PatternContext context);

// One per file.
std::unique_ptr<Pattern> MakeUsersPattern(PatternContext context);  // cycle, durdir, bursts
std::unique_ptr<Pattern> MakeStormPattern(PatternContext context);
std::unique_ptr<Pattern> MakeInflightPattern(PatternContext context);
std::unique_ptr<Pattern> MakeIngressPattern(PatternContext context);
std::unique_ptr<Pattern> MakeIdlePattern(PatternContext context);
std::unique_ptr<Pattern> MakeRoundsPattern(PatternContext context);
std::unique_ptr<Pattern> MakeSpawnPattern(PatternContext context);

// Runs `work` for 0..count-1, each on a thread of its own.
void OnThreads(int64_t count, const std::function<void(int64_t)>& work);
// Makes and wakes `count` actors, a few at a time. The first failure ends it.
StatusOr<std::vector<std::pair<std::string, ActorView>>> StartActors(const PatternContext& context,
                                                                     int64_t count);

}  // namespace torpor::bench
