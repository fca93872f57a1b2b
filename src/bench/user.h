#pragma once
// One simulated user with one actor: hibernate, sleep, wake, work, again and again.

#include <functional>
#include <memory>
#include <optional>
#include <random>
#include <string>

#include "base/time.h"
#include "base/uuid.h"
#include "bench/actor_control.h"
#include "bench/program.h"
#include "bench/recorder.h"
#include "bench/scenario.h"

namespace torpor::bench {

// What a user has to do with; everything outlives it.
struct UserWorld {
  const Scenario* scenario = nullptr;
  ActorControl* control = nullptr;
  Recorder* recorder = nullptr;
  Clock* clock = nullptr;
  IdSource* ids = nullptr;
  // Posts to the actor of that name through the router.
  std::function<Poster(const std::string& actor)> poster;
  std::function<void(Duration)> sleep;  // returns early when the run is to stop
  // Told of every actor before it is made; may be null.
  std::function<void(const std::string& actor)> made;
  // Told before and after each hibernation of a running actor; may be null.
  std::function<void(const ActorView& running, bool before)> hibernating;
  std::function<bool()> stopped;
};

// Belongs to one thread.
class User {
 public:
  User(UserWorld world, uint64_t seed);

  // Makes an actor, wakes it for the first time, fills its memory and hibernates it. `running` is
  // called while it runs; may be null.
  bool SetUp(const std::function<void(const ActorView&)>& running = nullptr);
  // One cycle; false when an operation failed (and the actor was replaced, or the user gives up).
  bool Cycle();
  // Cycles until the recorder's window is over, while `active` says so.
  void Run(const std::function<bool()>& active = nullptr);
  // The parts of a cycle.
  bool Wake();
  bool Work();
  bool Hibernate();

  const std::string& actor() const { return actor_; }
  const ActorView& running() const { return running_; }
  bool gave_up() const { return gave_up_; }

 private:
  bool Note(const std::string& row, const Outcome& outcome, bool always = false);
  bool NoteGeneration(const ActorView& view);
  bool PingWhileAwake();
  void HandleFailure();
  void Sleep(Duration min, Duration max);

  const UserWorld world_;
  const Scenario& scenario_;
  std::mt19937_64 random_;
  std::string actor_;
  std::unique_ptr<Program> program_;
  ActorView running_;           // as the last wake left it
  bool suspends_next_ = false;  // of the mode `both`
  int64_t generation_ = 0;
  std::optional<MonotonicTime> hibernated_;  // when the last hibernation ended well
  bool gave_up_ = false;
};

}  // namespace torpor::bench
