#include "bench/users_pattern.h"

#include <fmt/ranges.h>

namespace torpor::bench {

UsersPattern::UsersPattern(PatternContext context)
    : context_(std::move(context)), scenario_(context_.world->scenario) {
  if (scenario_.sandbox_class == "gvisor") memory_ = std::make_unique<MemoryWatch>();
}

UserWorld UsersPattern::WorldOfUsers() {
  World* world = context_.world;
  UserWorld out;
  out.scenario = &scenario_;
  out.control = world->control.get();
  out.recorder = context_.recorder;
  out.clock = Clock::Real();
  out.ids = IdSource::Real();
  out.poster = [world](const std::string& actor) { return world->PosterOf(actor); };
  out.sleep = context_.sleep;
  out.stopped = context_.stopped;
  out.made = [world](const std::string& actor) { world->Note(actor); };
  out.hibernating = [this](const ActorView& running, bool before) {
    if (!before) ++hibernations_;
    if (memory_ == nullptr) return;
    before ? memory_->BeforeHibernation(running.uid) : memory_->AfterHibernation(running.uid);
  };
  return out;
}

void UsersPattern::ForAll(const std::function<void(User&)>& work) {
  OnThreads(static_cast<int64_t>(users_.size()),
            [&](int64_t i) { work(*users_[static_cast<size_t>(i)]); });
}

Status UsersPattern::SetUp(const WhileRunning& running) {
  for (int64_t i = 0; i < scenario_.users; ++i) {
    users_.push_back(
        std::make_unique<User>(WorldOfUsers(), static_cast<uint64_t>(scenario_.seed * 1000 + i)));
  }
  std::atomic<bool> all_up{true};
  ForAll([&](User& user) {
    const bool first = &user == users_[0].get();
    const bool up = user.SetUp(first ? running : nullptr);
    if (!up) all_up = false;
    for (int64_t i = 0; up && i < scenario_.warmup && !context_.stopped(); ++i) user.Cycle();
  });
  if (all_up) return OkStatus();
  return Status(Code::kUnavailable, fmt::format("an actor could not be set up: {}\n{}",
                                                fmt::join(context_.recorder->Finish().events, "\n"),
                                                context_.world->stack->LogTails()));
}

int64_t UsersPattern::UsersWanted(Duration elapsed) const {
  if (scenario_.pattern != "counter_burst") return scenario_.users;
  // Up over the ramp, then all, then down over the ramp, then up again.
  const Duration at = elapsed % scenario_.burst_period;
  const Duration ramp = scenario_.burst_ramp;
  if (ramp == Duration::zero()) return scenario_.users;
  const Duration edge = std::min<Duration>(at, scenario_.burst_period - at);
  return std::min(scenario_.users, scenario_.users * edge / ramp);
}

void UsersPattern::LookAtResumed() {
  constexpr Duration kAfter = std::chrono::seconds(5);
  if (memory_ == nullptr || users_[0]->gave_up() || context_.stopped()) return;
  ActorView view;
  if (!context_.world->control->Resume(users_[0]->actor(), &view).ok()) return;
  context_.sleep(kAfter);
  memory_->AddResumed(view.uid);
  context_.world->control->Pause(users_[0]->actor(), &view);
}

void UsersPattern::NoteThoseWhoGaveUp() {
  for (auto& user : users_) {
    if (user->gave_up()) context_.recorder->AddEvent("the user of " + user->actor() + " gave up");
  }
}

Status UsersPattern::Run() {
  Recorder* recorder = context_.recorder;
  if (scenario_.solo > Duration::zero()) {
    recorder->SetPrefix("solo ");
    recorder->BeginWindow(scenario_.solo);
    users_[0]->Run();
    recorder->SetPrefix("");
  }
  recorder->BeginWindow(scenario_.duration);
  OnThreads(static_cast<int64_t>(users_.size()), [&](int64_t i) {
    users_[static_cast<size_t>(i)]->Run([&] { return i < UsersWanted(recorder->Elapsed()); });
  });
  NoteThoseWhoGaveUp();
  LookAtResumed();
  if (memory_ != nullptr) memory_->Report(recorder);
  return OkStatus();
}

std::unique_ptr<Pattern> MakeUsersPattern(PatternContext context) {
  return std::make_unique<UsersPattern>(std::move(context));
}

namespace {

// All wake at once, once, after one has woken alone.
class StormPattern : public UsersPattern {
 public:
  using UsersPattern::UsersPattern;
  Status Run() override {
    Recorder* recorder = context_.recorder;
    recorder->SetPrefix("solo ");
    recorder->BeginWindow(scenario_.duration);
    users_[0]->Cycle();
    recorder->SetPrefix("");
    recorder->BeginWindow(scenario_.duration);
    const MonotonicTime begin = Clock::Real()->Now();
    std::vector<char> awake(users_.size(), false);
    OnThreads(static_cast<int64_t>(users_.size()), [&](int64_t i) {
      awake[static_cast<size_t>(i)] = users_[static_cast<size_t>(i)]->Wake();
    });
    Outcome all;
    all.ms = ToMs(Clock::Real()->Now() - begin);
    for (char woke : awake) {
      if (!woke) all.status = Status(Code::kInternal, "not every actor woke");
    }
    recorder->Add("TimeToAllResumed", all);
    ForAll([&](User& user) { user.Work(); });
    ForAll([](User& user) { user.Hibernate(); });
    recorder->EndWindow();
    return OkStatus();
  }
};

}  // namespace

std::unique_ptr<Pattern> MakeStormPattern(PatternContext context) {
  return std::make_unique<StormPattern>(std::move(context));
}

}  // namespace torpor::bench
