#include "bench/user.h"

namespace torpor::bench {

User::User(UserWorld world, uint64_t seed)
    : world_(std::move(world)), scenario_(*world_.scenario), random_(seed) {}

bool User::Note(const std::string& row, const Outcome& outcome, bool always) {
  world_.recorder->Add(row, outcome, always);
  if (outcome.corrupt) gave_up_ = true;
  return outcome.ok();
}

bool User::NoteGeneration(const ActorView& view) {
  const bool forward = view.generation >= generation_;
  if (!forward) {
    world_.recorder->AddEvent(fmt::format("{}: generation went from {} back to {}", actor_,
                                          generation_, view.generation));
    world_.recorder->AddCrashed();
  }
  generation_ = view.generation;
  return forward;
}

bool User::SetUp(const std::function<void(const ActorView&)>& running) {
  running_ = {};
  actor_ = "sb-" + world_.ids->NewUuid();
  if (world_.made != nullptr) world_.made(actor_);
  program_ = MakeProgram(scenario_, world_.poster(actor_));
  generation_ = 0;
  hibernated_.reset();
  if (!Note("CreateActor", world_.control->Create(actor_), true)) return false;
  ActorView view;
  if (!Note("ResumeActorColdStart", world_.control->Resume(actor_, &view), true)) return false;
  if (!NoteGeneration(view)) return false;
  if (running != nullptr) running(view);
  running_ = view;
  const Record record = [this](const std::string& row, const Outcome& outcome, bool always) {
    return Note(row, outcome, always);
  };
  if (!program_->Begin(record)) return false;
  return Hibernate();
}

bool User::Wake() {
  if (scenario_.resume_mode == "explicit") {
    ActorView view;
    Outcome outcome = world_.control->Resume(actor_, &view);
    // After a failed hibernation the actor may be awake; that is no wake to measure.
    const bool asleep = !outcome.ok() || view.resumed;
    if (!Note(asleep ? "ResumeActor" : "ResumeActorRunning", outcome) || !NoteGeneration(view)) {
      return false;
    }
    running_ = view;
    return true;
  }
  Outcome outcome = program_->FirstTouch();
  if (outcome.ok()) outcome.phases = world_.control->PhasesOfLastWake(actor_);
  return Note("WakeFirstTouch", outcome);
}

bool User::PingWhileAwake() {
  std::uniform_int_distribution<int64_t> live(scenario_.min_live.count(),
                                              scenario_.max_live.count());
  const MonotonicTime end = world_.clock->Now() + Duration(live(random_));
  for (int64_t i = 0; i < scenario_.max_pings_per_wake; ++i) {
    if (i > 0 && (world_.clock->Now() >= end || world_.stopped())) break;
    if (!Note(program_->PingRow(), program_->Ping(i))) return false;
  }
  const Duration left = end - world_.clock->Now();
  if (left > Duration::zero()) world_.sleep(left);
  return true;
}

bool User::Hibernate() {
  hibernated_.reset();
  ActorView view;
  const bool both = scenario_.lifecycle_mode == "both";
  const bool pause = both ? !suspends_next_ : scenario_.lifecycle_mode == "pause";
  suspends_next_ = !suspends_next_;
  if (world_.hibernating != nullptr) world_.hibernating(running_, true);
  Outcome outcome =
      pause ? world_.control->Pause(actor_, &view) : world_.control->Suspend(actor_, &view);
  if (world_.hibernating != nullptr) world_.hibernating(running_, false);
  const std::string row = pause ? "PauseActor" : "SuspendActor";
  if (scenario_.pattern == "inflight" && ReasonOf(outcome.status) == "SUPERSEDED") {
    // A request woke the actor before its upload was done: promised, and no failure.
    outcome.status = OkStatus();
    return Note(row + "Overtaken", outcome);
  }
  if (!Note(row, outcome) || !NoteGeneration(view)) return false;
  hibernated_ = world_.clock->Now();
  return true;
}

bool User::Work() {
  return program_->Work([this](const std::string& row, const Outcome& outcome, bool always) {
    return Note(row, outcome, always);
  });
}

bool User::Cycle() {
  const bool woke = Wake();
  if (woke && hibernated_) world_.recorder->AddCycle(*hibernated_);
  if (!woke || !Work() || !PingWhileAwake() || !Hibernate()) {
    HandleFailure();
    return false;
  }
  Sleep(scenario_.min_wait, scenario_.max_wait);
  return true;
}

void User::HandleFailure() {
  if (world_.control->IsCrashed(actor_)) world_.recorder->AddCrashed();
  if (gave_up_ || world_.stopped()) return;
  if (scenario_.on_failure == "stop") {
    gave_up_ = true;
    return;
  }
  if (scenario_.on_failure == "replace") {
    world_.control->Delete(actor_);
    world_.recorder->AddReplaced();
    // Without a working actor there is nothing to measure: the user stops, and all see it.
    if (!SetUp()) gave_up_ = true;
  }
  Sleep(scenario_.min_wait, scenario_.max_wait);
}

void User::Run(const std::function<bool()>& active) {
  constexpr Duration kLook = std::chrono::milliseconds(50);
  while (!gave_up_ && !world_.stopped() && !world_.recorder->WindowOver()) {
    if (active == nullptr || active()) {
      Cycle();
    } else {
      world_.sleep(kLook);
    }
  }
}

void User::Sleep(Duration min, Duration max) {
  std::uniform_int_distribution<int64_t> wait(min.count(), max.count());
  world_.sleep(Duration(wait(random_)));
}

}  // namespace torpor::bench
